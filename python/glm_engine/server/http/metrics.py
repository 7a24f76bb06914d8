"""What the server counts: totals since the start, and what came in the last minute."""

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

from glm_engine.core import acceptance

if TYPE_CHECKING:
    from glm_engine.core.reports import EngineInfo
    from glm_engine.server.http.request_record import RequestRecord


LEAST_SECONDS = 50e-6
RATIO = 1.15
NUM_BOUNDS = 120
WINDOW_SECONDS = 60
EVERY_BOUND = 5
BOUNDS = [LEAST_SECONDS * RATIO**power for power in range(NUM_BOUNDS)]
OUTCOMES = ((500, "failed"), (499, "disconnected"), (400, "refused"), (0, "finished"))


class SecondsHistogram:
    """Counts of durations in buckets whose bounds grow by 15 %."""

    def __init__(self) -> None:
        self.totals = [0] * (NUM_BOUNDS + 1)
        self.sum = 0.0
        self.slots: deque[tuple[int, dict[int, int]]] = deque()

    def add(self, seconds: float, now: float, count: int = 1) -> None:
        bucket = bisect_left(BOUNDS, seconds)
        self.totals[bucket] += count
        self.sum += seconds * count
        slot = self.slot_of(int(now))
        slot[bucket] = slot.get(bucket, 0) + count

    def slot_of(self, second: int) -> dict[int, int]:
        if not self.slots or self.slots[-1][0] != second:
            self.slots.append((second, {}))
            self.forget(second)
        return self.slots[-1][1]

    def forget(self, second: int) -> None:
        while self.slots and self.slots[0][0] <= second - WINDOW_SECONDS:
            self.slots.popleft()

    def recent(self, now: float) -> Counter[int]:
        """Return the counts of the last minute, by bucket."""
        self.forget(int(now))
        counts = Counter[int]()
        for _, slot in self.slots:
            counts.update(slot)
        return counts

    def percentiles(self, now: float, wanted: Iterable[int]) -> dict[int, float | None]:
        """Return the upper bound of the bucket that holds each percentile, or None."""
        counts = self.recent(now)
        return {one: percentile(counts, one) for one in wanted}

    def cumulative(self, every: int = EVERY_BOUND) -> list[tuple[str, float]]:
        """Return [(upper bound as text, count up to it)] with every n-th bound, and +Inf."""
        *counts, total = accumulate(self.totals)
        rows = zip(BOUNDS[::every], counts[::every], strict=True)
        return [*((f"{bound:.6g}", count) for bound, count in rows), ("+Inf", total)]


def percentile(counts: Counter[int], wanted: int) -> float | None:
    buckets = sorted(counts)
    up_to = accumulate(counts[bucket] for bucket in buckets)
    least = counts.total() * wanted / 100
    found = (bucket for bucket, seen in zip(buckets, up_to, strict=True) if seen >= least)
    bucket = next(found, None)
    return None if bucket is None else BOUNDS[min(bucket, NUM_BOUNDS - 1)]


class RecentCount:
    """A counter that also knows how much came in the last minute."""

    def __init__(self) -> None:
        self.total = 0
        self.slots: deque[list[int]] = deque()

    def add(self, count: int, now: float) -> None:
        self.total += count
        second = int(now)
        if self.slots and self.slots[-1][0] == second:
            self.slots[-1][1] += count
        else:
            self.slots.append([second, count])
            self.forget(second)

    def forget(self, second: int) -> None:
        while self.slots and self.slots[0][0] <= second - WINDOW_SECONDS:
            self.slots.popleft()

    def per_second(self, now: float) -> float | None:
        """Mean rate between the oldest second of the window and now; None where nothing came."""
        count = self.recent(now)
        if not self.slots:
            return None
        return count / max(1.0, now - self.slots[0][0])

    def recent(self, now: float) -> int:
        """Return what came in the last minute."""
        self.forget(int(now))
        return sum(count for _, count in self.slots)


def kv_utilisation(info: "EngineInfo") -> float:
    """Return the share of the KV pages that requests own, 0 to 1."""
    return float(info["owned_pages"] / max(1, info["total_pages"]))


def running_requests(info: "EngineInfo") -> int:
    """Return how many requests are in steps."""
    return max(0, int(info["live_requests"] - info["waiting_requests"]))


def batch_occupancy(info: "EngineInfo") -> float:
    """Return the share of `max_batch` that the requests in steps take, 0 to 1."""
    return running_requests(info) / max(1, int(info["max_batch"]))


def outcome_of(status: int) -> str:
    """Return the word of a status."""
    return next(word for least, word in OUTCOMES if status >= least)


class Metrics:
    """Counts of this process; the engine's own come from `info` when asked."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.requests: Counter[tuple[str, str]] = Counter()
        self.prompt_tokens = RecentCount()
        self.cached_tokens = 0
        self.generated_tokens = RecentCount()
        self.time_to_first_token = SecondsHistogram()
        self.inter_token = SecondsHistogram()
        self.request_seconds = SecondsHistogram()
        self.queue_seconds = SecondsHistogram()
        self.prefill_seconds = SecondsHistogram()
        self.decode_seconds = SecondsHistogram()
        self.seconds_per_token = SecondsHistogram()
        self.finished: Counter[str] = Counter()
        self.drafts = {name: RecentCount() for name in acceptance.COUNTS}

    def take_tokens(
        self, count: int, now: float, before: float | None, record: "RequestRecord"
    ) -> None:
        """Count tokens that came together; `before` is when their choice had its last ones."""
        self.generated_tokens.add(count, now)
        if before is not None:
            self.inter_token.add((now - before) / count, now, count)
            return
        if record.completion_tokens == count:
            self.time_to_first_token.add(now - record.began, now)
        if count > 1:
            self.inter_token.add(0.0, now, count - 1)

    def take_drafts(self, info: "EngineInfo", now: float) -> dict[str, int]:
        """Count the drafts since the last call; return the counts of the last minute."""
        for name, count in self.drafts.items():
            count.add(info[name] - count.total, now)
        return {name: count.recent(now) for name, count in self.drafts.items()}

    def take_prompt(self, num_tokens: int, num_cached: int, now: float) -> None:
        """Count a prompt once the engine has read it."""
        self.prompt_tokens.add(num_tokens, now)
        self.cached_tokens += num_cached

    def take_start(self, queue_seconds: float, prefill_seconds: float, now: float) -> None:
        """Count how long a sequence waited for its first step, and read until its first token."""
        self.queue_seconds.add(max(0.0, queue_seconds), now)
        self.prefill_seconds.add(prefill_seconds, now)

    def take_record(self, record: "RequestRecord") -> None:
        """Count a request, and its time if it had a prompt: polls and refusals would skew that."""
        self.requests[record.endpoint, outcome_of(record.status)] += 1
        if record.prompt_tokens:
            now = time.monotonic()
            self.request_seconds.add(now - record.began, now)
            self.take_decode(record, now)

    def take_decode(self, record: "RequestRecord", now: float) -> None:
        """Count the time behind the first token; tokens that all came together took none."""
        if not record.completion_tokens:
            return
        seconds = record.decode_seconds()
        self.decode_seconds.add(seconds, now)
        if record.completion_tokens > 1:
            self.seconds_per_token.add(seconds / (record.completion_tokens - 1), now)
