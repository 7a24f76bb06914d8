"""The files of the checkout that go along where the wheel is built on Modal."""

import functools
import subprocess

from glm_engine.errors import BadInputError
from glm_engine.libraries import CHECKOUT


@functools.cache
def source_files():
    """Return the files that git tracks in the checkout, by their place in it."""
    listed = ["git", "-C", str(CHECKOUT), "ls-files", "-z"]
    try:
        found = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BadInputError(f"--ship source: {CHECKOUT} is no checkout of git") from error
    names = [name for name in found.split("\0") if (CHECKOUT / name).is_file()]
    return frozenset(names)


def is_left_out(path):
    """Say whether a file of the checkout stays here."""
    return str(path) not in source_files()
