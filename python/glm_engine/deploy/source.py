"""The files of the checkout that go along where the wheel is built on Modal."""

import functools
import subprocess

from glm_engine.bounded_process import clean_environment
from glm_engine.errors import BadInputError
from glm_engine.layout import IS_WHEEL, ROOT

GIT_SECONDS = 60


@functools.cache
def source_files():
    """Return the files that git tracks in the checkout, by their place in it."""
    if IS_WHEEL:
        raise BadInputError("--ship source: this glm is a wheel; its sources are not here")
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
        raise BadInputError(f"--ship source: {ROOT} is no checkout of git") from error
    names = [name for name in found.split("\0") if (ROOT / name).is_file()]
    return frozenset(names)


def is_left_out(path):
    """Say whether a file of the checkout stays here."""
    return str(path) not in source_files()
