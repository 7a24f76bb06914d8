"""The threads of a running server: which core they may use."""

import os
from pathlib import Path


def thread_ids(process_id: int) -> list[int]:
    return sorted(int(path.name) for path in Path(f"/proc/{process_id}/task").iterdir())


def pin(process_id: int, http_cores: frozenset[int], engine_cores: frozenset[int]) -> None:
    """Let the main thread, which speaks HTTP, run on some cores and all others on others."""
    for thread_id in thread_ids(process_id):
        os.sched_setaffinity(thread_id, http_cores if thread_id == process_id else engine_cores)
