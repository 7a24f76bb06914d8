"""Histograms of seconds: totals since the start, and percentiles over the last minute."""

from bisect import bisect_left
from collections import deque

LEAST_SECONDS = 50e-6
RATIO = 1.15
NUM_BOUNDS = 120
WINDOW_SECONDS = 60
EVERY_BOUND = 5
BOUNDS = [LEAST_SECONDS * RATIO**power for power in range(NUM_BOUNDS)]


class SecondsHistogram:
    """Counts of durations in buckets whose bounds grow by 15 %."""

    def __init__(self):
        self.totals = [0] * (NUM_BOUNDS + 1)
        self.sum = 0.0
        self.slots = deque()

    def add(self, seconds, now, count=1):
        bucket = bisect_left(BOUNDS, seconds)
        self.totals[bucket] += count
        self.sum += seconds * count
        slot = self.slot_of(int(now))
        slot[bucket] = slot.get(bucket, 0) + count

    def slot_of(self, second):
        if not self.slots or self.slots[-1][0] != second:
            self.slots.append((second, {}))
            self.forget(second)
        return self.slots[-1][1]

    def forget(self, second):
        while self.slots and self.slots[0][0] <= second - WINDOW_SECONDS:
            self.slots.popleft()

    def recent(self, now):
        """Return the counts of the last minute, by bucket."""
        self.forget(int(now))
        counts = {}
        for _, slot in self.slots:
            for bucket, count in slot.items():
                counts[bucket] = counts.get(bucket, 0) + count
        return counts

    def percentiles(self, now, wanted):
        """Return the upper bound of the bucket that holds each percentile, or None."""
        counts = self.recent(now)
        total = sum(counts.values())
        return {one: percentile(counts, total, one) for one in wanted}

    def cumulative(self, every=EVERY_BOUND):
        """Return [(upper bound as text, count up to it)] with every n-th bound, and +Inf."""
        rows, count = [], 0
        for bucket, bound in enumerate(BOUNDS):
            count += self.totals[bucket]
            if bucket % every == 0:
                rows.append((f"{bound:.6g}", count))
        return [*rows, ("+Inf", count + self.totals[-1])]


def percentile(counts, total, wanted):
    if not total:
        return None
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= total * wanted / 100:
            return BOUNDS[min(bucket, NUM_BOUNDS - 1)]
    return BOUNDS[-1]


class RecentCount:
    """A counter that also knows how much came in the last minute."""

    def __init__(self):
        self.total = 0
        self.slots = deque()

    def add(self, count, now):
        self.total += count
        second = int(now)
        if self.slots and self.slots[-1][0] == second:
            self.slots[-1][1] += count
        else:
            self.slots.append([second, count])
            self.forget(second)

    def forget(self, second):
        while self.slots and self.slots[0][0] <= second - WINDOW_SECONDS:
            self.slots.popleft()

    def per_second(self, now):
        """Mean rate between the oldest second of the window and now; None where nothing came."""
        count = self.recent(now)
        if not self.slots:
            return None
        return count / max(1.0, now - self.slots[0][0])

    def recent(self, now):
        """Return what came in the last minute."""
        self.forget(int(now))
        return sum(count for _, count in self.slots)
