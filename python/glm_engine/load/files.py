"""Files that are written whole or not at all."""

import os
from pathlib import Path

from glm_engine.errors import BadInputError


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
