"""Files that a command writes: whole or not at all."""

import json
import os
from pathlib import Path

from glm_engine.errors import BadInputError


def prepare_target(path):
    """Make the folder of a file to be written, and refuse one that cannot be written."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        path.open("ab").close()
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink()
    return path


def write_whole(path, content):
    """Write bytes to a file beside `path`, then rename it; a device or pipe is written to."""
    path = Path(path).resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
            path.write_bytes(content)
            return
        try:
            beside.write_bytes(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}") from error


def write_report(report, path):
    """Write a report as JSON."""
    write_whole(path, (json.dumps(report, indent=2, allow_nan=False) + "\n").encode())
