"""A fresh process that loads a checkpoint once and prints the seconds and what the disk gave."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from glm_engine.core.engine import Engine, EngineOptions
from glm_engine.core.errors import GlmError
from glm_engine.core.layout import CAPITALS
from tools.bench.machine import proc_field


def bytes_from_disk() -> int:
    """What this process has had read from disks so far."""
    return int(proc_field("/proc/self/io", "read_bytes"))


def forget(folder: Path) -> None:
    """Tell the kernel to keep nothing of a folder's files in memory."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remember(folder: Path) -> None:
    """Have the kernel read a folder's files."""
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def load(folder: Path, **options) -> None:
    chosen = {"max_batch": 1, "max_seq": 64, "graphs": False, **options}
    Engine(EngineOptions(folder, **chosen)).close()


def read_by(act: Callable[[], object]) -> int:
    """The bytes that the disk gives while `act` runs."""
    before = bytes_from_disk()
    act()
    return bytes_from_disk() - before


def answer(folder: str, is_cold: bool, options: dict) -> dict:
    """Load `capitals` first, so that libraries, contexts and kernels are there."""
    load(CAPITALS, **options)
    (forget if is_cold else remember)(Path(folder))
    begin = time.monotonic()
    num_bytes = read_by(lambda: load(Path(folder), **options))
    return {"seconds": time.monotonic() - begin, "bytes_from_disk": num_bytes}


def main() -> None:
    try:
        told = answer(**json.loads(sys.argv[1]))
    except GlmError as error:
        told = {"error": str(error)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
