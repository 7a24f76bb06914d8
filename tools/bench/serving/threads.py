"""The threads of a running server: which core they may use, and what they used."""

import os
from dataclasses import dataclass
from pathlib import Path

SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")
USER_TICKS, SYSTEM_TICKS = 11, 12


@dataclass(frozen=True)
class Spent:
    """CPU seconds of a process: its main thread, which speaks HTTP, and all others."""

    http: float
    engine: float

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.http - other.http, self.engine - other.engine)


def thread_ids(process_id: int) -> list[int]:
    return sorted(int(path.name) for path in Path(f"/proc/{process_id}/task").iterdir())


def thread_seconds(process_id: int, thread_id: int) -> float:
    """User and system seconds of one thread, from the fields after its name."""
    text = Path(f"/proc/{process_id}/task/{thread_id}/stat").read_text(encoding="utf-8")
    fields = text.rpartition(")")[2].split()
    return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) * SECONDS_PER_TICK


def spent(process_id: int) -> Spent:
    seconds = {one: thread_seconds(process_id, one) for one in thread_ids(process_id)}
    http = seconds.pop(process_id)
    return Spent(http, sum(seconds.values()))


def pin(process_id: int, http_cores: set[int], engine_cores: set[int]) -> None:
    """Let the main thread run on some cores and every other thread on others."""
    for thread_id in thread_ids(process_id):
        os.sched_setaffinity(thread_id, http_cores if thread_id == process_id else engine_cores)
