"""What became of each request."""

from array import array
from dataclasses import dataclass, field

COMPLETED, INTERRUPTED, LOST = "200", "interrupted", "client process lost"


@dataclass
class Record:
    """One request. Times are monotonic seconds; None where a thing did not happen.

    `outcome` is "200", another HTTP status, or what went wrong in words. `gaps` are the seconds
    of each event with text but the first, as `Arrived` shares them.
    """

    due: float
    max_tokens: int
    began: float
    outcome: str = INTERRUPTED
    ended: float | None = None
    first: float | None = None
    last: float | None = None
    num_events: int = 0
    gaps: "array[float]" = field(default_factory=lambda: array("d"))
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    has_usage: bool = True
    message: str = ""

    @property
    def is_completed(self) -> bool:
        return self.outcome == COMPLETED

    @property
    def lateness(self) -> float:
        return self.began - self.due

    @property
    def ttft(self) -> float | None:
        """Seconds to the first text."""
        return None if self.first is None else self.first - self.began

    @property
    def tpot(self) -> float | None:
        """Seconds for each output token after the first."""
        if self.first is None or self.last is None or self.completion_tokens < 2:
            return None
        return (self.last - self.first) / (self.completion_tokens - 1)

    @property
    def e2e(self) -> float | None:
        return None if self.ended is None else self.ended - self.began


@dataclass
class Outcome:
    """The records of one worker that started at `start`, and the CPU seconds that it took.

    `num_lost` requests are those of a worker that ended without its records.
    """

    start: float
    records: list[Record] = field(default_factory=list)
    cpu_seconds: float = 0.0
    is_interrupted: bool = False
    num_lost: int = 0
