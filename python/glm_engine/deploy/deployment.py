"""What `glm deploy` was told about the app on Modal."""

from dataclasses import dataclass
from pathlib import Path

from glm_engine.deploy.gpus import Gpu
from glm_engine.deploy.job import Job
from glm_engine.deploy.source import source_files
from glm_engine.errors import BadInputError
from glm_engine.layout import LIBRARIES, ROOT

WHEELS = LIBRARIES / "wheel"
CPU_MARK = "+cpu"
SHIPS = ("artifacts", "source")


@dataclass(frozen=True)
class Deployment:
    """An app on Modal: its job, its GPUs, what its image is made of, and its replicas.

    Without a wheel, the image builds one from the sources of the checkout.
    """

    job: Job
    gpu: Gpu
    wheel: Path | None
    app_name: str = "glm-engine"
    hub_secret: str | None = None
    keys_secret: str = "glm-api-keys"
    min_replicas: int = 0
    max_replicas: int = 1
    scaledown_seconds: int = 300
    concurrent_requests: int = 256

    def files(self):
        """Return the files of this machine that go along."""
        if self.wheel is not None:
            return [self.wheel]
        return [ROOT / name for name in sorted(source_files())]


def chosen_wheel(ship, stated):
    """Return the wheel that goes along: the stated one, else the one that was built here."""
    if ship == "source":
        if stated:
            raise BadInputError("--wheel: the sources go along, which build a wheel of their own")
        return None
    found = [Path(stated)] if stated else sorted(WHEELS.glob("*.whl"))
    if len(found) != 1 or not found[0].is_file() or found[0].suffix != ".whl":
        raise BadInputError(
            f"expected one wheel, found {stated or f'{len(found)} in {WHEELS}'}: "
            "`tools/develop --with cuda scons wheel` makes it, --wheel names another"
        )
    if CPU_MARK in found[0].name:
        raise BadInputError(f"{found[0]}: expected a wheel with the CUDA device, this has none")
    return found[0]
