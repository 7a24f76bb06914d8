"""What the server counts: totals since the start, and what came in the last minute."""

import time
from bisect import bisect_left
from collections import Counter, deque

from glm_engine.core import acceptance

LEAST_SECONDS = 50e-6
RATIO = 1.15
NUM_BOUNDS = 120
WINDOW_SECONDS = 60
EVERY_BOUND = 5
BOUNDS = [LEAST_SECONDS * RATIO**power for power in range(NUM_BOUNDS)]
OUTCOMES = ((500, "failed"), (499, "disconnected"), (400, "refused"), (0, "finished"))


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


def kv_utilisation(info):
    """Return the share of the KV pages that requests own, 0 to 1."""
    return info["owned_pages"] / max(1, info["total_pages"])


def running_requests(info):
    """Return how many requests are in steps."""
    return max(0, info["live_requests"] - info["waiting_requests"])


def batch_occupancy(info):
    """Return the share of `max_batch` that the requests in steps take, 0 to 1."""
    return running_requests(info) / max(1, info["max_batch"])


def outcome_of(status):
    """Return the word of a status."""
    return next(word for least, word in OUTCOMES if status >= least)


class Metrics:
    """Counts of this process; the engine's own come from `info` when asked."""

    def __init__(self):
        self.began = time.monotonic()
        self.requests = Counter()
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
        self.finished = Counter()
        self.drafts = {name: RecentCount() for name in acceptance.COUNTS}

    def take_tokens(self, count, now, before, record):
        """Count tokens that came together; `before` is when their choice had its last ones."""
        self.generated_tokens.add(count, now)
        if before is not None:
            self.inter_token.add((now - before) / count, now, count)
            return
        if record.completion_tokens == count:
            self.time_to_first_token.add(now - record.began, now)
        if count > 1:
            self.inter_token.add(0.0, now, count - 1)

    def take_drafts(self, info, now):
        """Count the drafts since the last call; return the counts of the last minute."""
        for name, count in self.drafts.items():
            count.add(info[name] - count.total, now)
        return {name: count.recent(now) for name, count in self.drafts.items()}

    def take_prompt(self, num_tokens, num_cached, now):
        """Count a prompt once the engine has read it."""
        self.prompt_tokens.add(num_tokens, now)
        self.cached_tokens += num_cached

    def take_start(self, queue_seconds, prefill_seconds, now):
        """Count how long a sequence waited for its first step, and read until its first token."""
        self.queue_seconds.add(max(0.0, queue_seconds), now)
        self.prefill_seconds.add(prefill_seconds, now)

    def take_record(self, record):
        """Count a request, and its time if it had a prompt: polls and refusals would skew that."""
        self.requests[record.endpoint, outcome_of(record.status)] += 1
        if record.prompt_tokens:
            now = time.monotonic()
            self.request_seconds.add(now - record.began, now)
            self.take_decode(record, now)

    def take_decode(self, record, now):
        """Count the time behind the first token; tokens that all came together took none."""
        if not record.completion_tokens:
            return
        seconds = record.last_token_at - record.first_token_at
        self.decode_seconds.add(seconds, now)
        if record.completion_tokens > 1:
            self.seconds_per_token.add(seconds / (record.completion_tokens - 1), now)
