"""The files of the checkout that are sent when Modal builds the wheel."""

import functools
import subprocess
from pathlib import Path

from glm_engine.core.bounded_process import clean_environment
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import IS_WHEEL, ROOT

GIT_SECONDS = 60


@functools.cache
def source_files() -> frozenset[str]:
    """Return the paths of the files that git tracks, relative to the checkout."""
    if IS_WHEEL:
        raise BadInputError(
            "--ship source needs a source checkout, but this glm was installed from a wheel"
        )
    listed = ["git", "-C", str(ROOT), "ls-files", "-z"]
    try:
        found = subprocess.run(
            listed,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BadInputError(f"--ship source: {ROOT} is not a git checkout") from error
    names = [name for name in found.split("\0") if (ROOT / name).is_file()]
    return frozenset(names)


def is_left_out(path: Path) -> bool:
    """Say whether a file of the checkout is not sent."""
    return str(path) not in source_files()
