"""When the events of an answer came, and how much time each took."""

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glm_engine.load.records import Record


class Arrived:
    """The times of events, in monotonic seconds.

    Events of one time came together: in one read, or from one forward pass with draft tokens.
    They share the time since the events before them evenly.
    """

    def __init__(self) -> None:
        self.times, self.counts = array("d"), array("q")
        self.num_events = 0

    def add(self, now: float) -> None:
        """One more event."""
        self.num_events += 1
        if self.times and self.times[-1] == now:
            self.counts[-1] += 1
        else:
            self.times.append(now)
            self.counts.append(1)

    @property
    def first(self) -> float | None:
        return self.times[0] if self.times else None

    @property
    def last(self) -> float | None:
        return self.times[-1] if self.times else None

    def gaps(self) -> "array[float]":
        """Return the seconds of each event but the first."""
        found = array("d")
        if self.times:
            found.extend([0.0] * (self.counts[0] - 1))
        for (before, now), count in zip(pairwise(self.times), self.counts[1:], strict=True):
            found.extend([(now - before) / count] * count)
        return found

    def fill(self, record: "Record") -> None:
        """Take over the times into a `Record`."""
        record.first, record.last, record.gaps = self.first, self.last, self.gaps()
        record.num_events = self.num_events
