"""Calls of CUDA's own libraries that give a status."""

import ctypes
from functools import cache

from glm_engine.core.engine import find_gpus


class StatusError(RuntimeError):
    """A call that did not succeed."""


@cache
def driver_library() -> ctypes.CDLL:
    return ctypes.CDLL(find_gpus()["driver"])


def checked(library: ctypes.CDLL, call: str, *arguments: object) -> None:
    """Raises `StatusError` unless a call gives 0."""
    status = getattr(library, call)(*arguments)
    if status:
        raise StatusError(f"{call}: expected status 0, got {status}")


def driver(call: str, *arguments: object) -> None:
    checked(driver_library(), call, *arguments)
