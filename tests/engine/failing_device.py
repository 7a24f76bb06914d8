"""The libraries of `failing/backend.c`: the CPU device, of which one operation can be made to fail.

`libglm_cpu.so` and `libglm_cuda.so` are the same code: what the engine does for a device kind whose
devices have memories of their own is tested with the second.
"""

import ctypes
from functools import cache
from pathlib import Path

from tests.engine.probes import ROOT

FOLDER = ROOT / "build" / "tests" / "failing"
INNER = ROOT / "build" / "libglm_cpu.so"
NEVER = 2**31 - 1
EVERY_RANK = -1


@cache
def library(kind: str = "cpu") -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(FOLDER / f"libglm_{kind}.so"))
    text, number = ctypes.c_char_p, ctypes.c_int32
    loaded.failing_arm.argtypes = [text, number, text, number]
    loaded.failing_arm.restype = None
    loaded.failing_set_memories.argtypes = [number, ctypes.POINTER(ctypes.c_int64)]
    loaded.failing_set_memories.restype = None
    return loaded


def arm(
    rank: int = 0, operation: str = "", call: int = NEVER, kind: str = "cpu", inner: Path = INNER
) -> None:
    """Let the operation's call of that number, counted from now, fail on a rank; on every rank
    that call of any of them and all later ones."""
    library(kind).failing_arm(str(inner).encode(), rank, operation.encode(), call)


def set_memories(memories: list[int], kind: str) -> None:
    """Let there be so many devices, with so many free bytes each; none: as the CPU device says."""
    library(kind).failing_set_memories(len(memories), (ctypes.c_int64 * len(memories))(*memories))
