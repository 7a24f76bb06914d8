"""Errors that reach a user: one clear line, and the exit code that goes with it.

What is refused wherever a user states it is here, too: a value that is empty.
"""

import os
from collections.abc import Mapping
from enum import IntEnum

from glm_engine.core.layout import StrPath


class Status(IntEnum):
    """The values of `glm_status` in native/include/glm/status.h."""

    GLM_OK = 0
    GLM_INVALID_ARGUMENT = 1
    GLM_INVALID_CHECKPOINT = 2
    GLM_OUT_OF_MEMORY = 3
    GLM_NOT_SUPPORTED = 4
    GLM_NOT_FOUND = 5
    GLM_IO_ERROR = 6
    GLM_DEVICE_ERROR = 7
    GLM_NUMERIC_ERROR = 8
    GLM_CANCELLED = 9
    GLM_QUEUE_FULL = 10
    GLM_INTERNAL_ERROR = 11


class ExitCode(IntEnum):
    """What a shell sees."""

    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    ENGINE = 3
    INTERRUPTED = 130


BAD_INPUT_STATUSES = frozenset(
    {
        Status.GLM_INVALID_ARGUMENT,
        Status.GLM_INVALID_CHECKPOINT,
        Status.GLM_NOT_FOUND,
        Status.GLM_IO_ERROR,
    }
)


class GlmError(Exception):
    """Anything a command reports as one line."""

    exit_code: ExitCode = ExitCode.FAILED


class BadInputError(GlmError):
    """A file, tensor or option that the user gave is not usable."""

    exit_code = ExitCode.BAD_INPUT


def no_checkpoint(path: StrPath) -> BadInputError:
    """Return the error of a path that is not even a folder."""
    if os.path.isfile(path):
        return BadInputError(f"{path} is a file, not a checkpoint folder")
    shown = path or "an empty path"
    return BadInputError(f"{shown}: no such folder; expected a checkpoint folder or ORG/NAME")


def refuse_empty(name: str, value: object) -> None:
    """Raise BadInputError where the value of an option or a variable is an empty text.

    An empty one is a shell variable that was not set; taken for no value, it would open doors.
    """
    if value == "":
        raise BadInputError(f"{name}: expected a value, got an empty string")


def variable(name: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the value of an environment variable, None where it is not set."""
    value = environment.get(name)
    refuse_empty(name, value)
    return value


class EngineLibraryError(GlmError):
    """engine.so is absent, or is not the one this package was written for."""

    exit_code = ExitCode.ENGINE


class EngineError(GlmError):
    """A status other than GLM_OK, with the message that the engine left."""

    def __init__(self, operation: str, status: int, message: str) -> None:
        self.operation = operation
        self.status = as_status(status)
        self.message = message
        is_bad_input = self.status in BAD_INPUT_STATUSES
        self.exit_code = ExitCode.BAD_INPUT if is_bad_input else ExitCode.ENGINE
        super().__init__(message or f"{operation} failed with {name_of(status)}")


def as_status(value: int) -> Status | int:
    try:
        return Status(value)
    except ValueError:
        return value


def name_of(value: int) -> str:
    status = as_status(value)
    return status.name if isinstance(status, Status) else f"unknown status {value}"
