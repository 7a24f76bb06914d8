"""The app on Modal, as the options of `glm deploy` describe it."""

from dataclasses import dataclass
from pathlib import Path

from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import IS_WHEEL, LIBRARIES, ROOT
from glm_engine.deploy.gpus import Gpu
from glm_engine.deploy.job import Job
from glm_engine.deploy.source import source_files
from glm_engine.version import DISTRIBUTION, VERSION

WHEELS = LIBRARIES / "wheel"
CPU_MARK = "+cpu"
SHIPS = ("artifacts", "source", "index")
RELEASE = f"{DISTRIBUTION}=={VERSION}"


@dataclass(frozen=True)
class Deployment:
    """An app on Modal: its job, its GPUs, the contents of its image, and its replicas.

    `ship` is one of SHIPS: the image installs the wheel, builds one from the sources of the
    checkout, or installs RELEASE from a package index.
    """

    job: Job
    gpu: Gpu
    wheel: Path | None
    ship: str = SHIPS[0]
    app_name: str = "glm-engine"
    hub_secret: str | None = None
    keys_secret: str = "glm-api-keys"
    min_replicas: int = 0
    max_replicas: int = 1
    scaledown_seconds: int = 300
    concurrent_requests: int = 256

    def files(self) -> list[Path]:
        """Return the files of this machine that are sent."""
        if self.ship == "source":
            return [ROOT / name for name in sorted(source_files())]
        return [] if self.wheel is None else [self.wheel]


def chosen_ship_and_wheel(ship: str | None, stated: str | None) -> tuple[str, Path | None]:
    """Return how the image gets the engine, and the wheel to send if one is sent.

    It is the one that --wheel names, else the one built here; an installed glm has none.
    """
    ship = ship or ("index" if IS_WHEEL and stated is None else "artifacts")
    if stated and ship != "artifacts":
        raise BadInputError(f"--wheel cannot be used with --ship {ship}")
    if ship != "artifacts":
        return ship, None
    found = [Path(stated)] if stated else sorted(WHEELS.glob("*.whl"))
    if len(found) != 1 or not found[0].is_file() or found[0].suffix != ".whl":
        raise BadInputError(
            f"expected one wheel, found {stated or f'{len(found)} in {WHEELS}'}; build it with "
            "`tools/develop --with cuda scons wheel`, or pass --wheel FILE"
        )
    if CPU_MARK in found[0].name:
        raise BadInputError(
            f"{found[0]}: expected a wheel with CUDA support, but this one supports only the CPU"
        )
    return ship, found[0]
