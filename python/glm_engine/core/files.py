"""Files that a command reads and writes: each is whole, or its fault is one line."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import StrPath

Report = TypeVar("Report")
MOST_BYTES = 1 << 30
PIECE_BYTES = 1 << 20


def read_bytes(path: StrPath) -> bytes:
    """Return the content of a file or pipe, at most `MOST_BYTES` of it; else BadInputError."""
    content = bytearray()
    try:
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(PIECE_BYTES):
                content += piece
                if len(content) > MOST_BYTES:
                    raise BadInputError(f"{path}: larger than {MOST_BYTES} bytes")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(f"{path}: cannot be read: {reason}") from error
    return bytes(content)


def read_text(path: StrPath) -> str:
    """Return the text of a file that is UTF-8; else BadInputError."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise BadInputError(f"{path}: invalid UTF-8: {found}") from error


def text_or_nothing(path: StrPath) -> str:
    """Return the text of a file, empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_json(path: StrPath) -> Any:
    """Return what a JSON file holds; else BadInputError."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: invalid JSON: {error}") from error


def read_object(path: StrPath) -> dict[str, Any]:
    """Return the object of a JSON file as a dictionary; else BadInputError."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise BadInputError(f"{path}: expected a JSON object, got {type(found).__name__}")
    return found


def read_report(path: StrPath, command: str, completed: Callable[[Any], Report]) -> Report:
    """Return a report of a command as `completed` returns it; BadInputError where it cannot.

    `completed` goes through all that is shown.
    """
    report = read_json(path)
    try:
        json.dumps(report, allow_nan=False)
        return completed(report)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise BadInputError(f"{path}: not a {command} report: {error!r}") from error


def prepare_target(path: StrPath) -> Path:
    """Make the folder of a file to be written, and refuse one that cannot be written."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        path.open("ab").close()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error
    if not existed:
        path.unlink()
    return path


def write_whole(path: StrPath, content: bytes) -> None:
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
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error


def write_report(report: object, path: StrPath) -> None:
    """Write a report as JSON."""
    write_whole(path, (json.dumps(report, indent=2, allow_nan=False) + "\n").encode())
