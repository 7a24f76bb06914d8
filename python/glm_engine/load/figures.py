"""From records to figures: rates, percentiles, goodput."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy

from glm_engine.core.errors import BadInputError
from glm_engine.load.fields import Counts, Figures, Goodput, Latencies, Rates, Summary
from glm_engine.load.records import LOST, Outcome, Record

PERCENTILES = (50, 90, 99)
LIMITED = ("ttft", "tpot", "e2e")
DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s)")
MILLISECONDS = 1e3
SHOWN_MESSAGES = 3
CONTEXT = re.compile(r"context length(?: \(max_seq\))? is (\d{1,9})\b", re.IGNORECASE)


def parse_goodput(text: str) -> dict[str, float]:
    """Return the limits in seconds of a text like `ttft:200ms,tpot:50ms,e2e:2s`."""
    limits: dict[str, float] = {}
    for field in text.split(","):
        name, _, duration = field.strip().partition(":")
        match = DURATION.fullmatch(duration)
        if name not in LIMITED or not match or name in limits:
            known = ", ".join(LIMITED)
            raise BadInputError(
                f"--goodput: expected {known} with durations, e.g. ttft:200ms,tpot:50ms,e2e:2s, "
                f"got {field!r}"
            )
        limits[name] = float(match[1]) / (MILLISECONDS if match[2] == "ms" else 1)
    return limits


def make_figures(rate: float, outcomes: Sequence[Outcome], limits: Mapping[str, float]) -> Figures:
    """The figures of one rate, from the start of the first worker."""
    start = min(outcome.start for outcome in outcomes)
    records = [record for outcome in outcomes for record in outcome.records]
    done = [record for record in records if record.is_completed]
    ends = [record.ended for record in records if record.ended is not None]
    duration = max(ends, default=start) - start
    return {
        "rate": None if math.isinf(rate) else rate,
        "duration_s": duration,
        "is_interrupted": any(outcome.is_interrupted for outcome in outcomes),
        **counts(records, done, sum(outcome.num_lost for outcome in outcomes)),
        **rates(records, done, duration, start),
        **latencies(records, done),
        "goodput": goodput(done, duration, limits),
        "client_cpu_seconds": sum(outcome.cpu_seconds for outcome in outcomes),
        "client_cpu_share": max(
            (outcome.cpu_seconds / duration for outcome in outcomes if duration), default=0.0
        ),
    }


def counts(records: Sequence[Record], done: Sequence[Record], num_lost: int) -> Counts:
    failed = [record for record in records if not record.is_completed]
    became = Counter(record.outcome for record in records) + Counter({LOST: num_lost})
    messages = Counter(f"{one.outcome}: {one.message}" for one in failed if one.message)
    return {
        "num_sent": len(records),
        "num_completed": len(done),
        "outcomes": dict(became.most_common()),
        "messages": [text for text, _ in messages.most_common(SHOWN_MESSAGES)],
        "exceeded_context": exceeded_context(failed),
        "prompt_tokens": sum(record.prompt_tokens for record in done),
        "cached_tokens": sum(record.cached_tokens for record in done),
        "output_tokens": sum(record.completion_tokens for record in done),
        "num_events": sum(record.num_events for record in done),
        "num_shorter": sum(
            record.completion_tokens < record.max_tokens for record in done if record.has_usage
        ),
        "num_without_usage": sum(not record.has_usage for record in done),
        "peak_concurrency": peak_concurrency(records),
    }


def exceeded_context(failed: Sequence[Record]) -> int | None:
    """Return the context length that every failed request exceeded, None if one had not."""
    found = [CONTEXT.search(record.message) for record in failed]
    first, *_ = found or [None]
    return int(first[1]) if first and all(found) else None


def rates(
    records: Sequence[Record], done: Sequence[Record], duration: float, start: float
) -> Rates:
    def per_second(count: int) -> float:
        return count / duration if duration > 0 else 0.0

    span = max((record.began for record in records), default=start) - start
    return {
        "arrivals_per_second": len(records) / span if span > 0 else None,
        "requests_per_second": per_second(len(done)),
        "prompt_tokens_per_second": per_second(sum(one.prompt_tokens for one in done)),
        "output_tokens_per_second": per_second(sum(one.completion_tokens for one in done)),
    }


def latencies(records: Sequence[Record], done: Sequence[Record]) -> Latencies:
    """Return mean, percentiles and maximum of each latency in milliseconds; None without data."""
    gaps = [numpy.frombuffer(record.gaps) for record in done if len(record.gaps)]
    return {
        "ttft_ms": summary([record.ttft for record in done]),
        "tpot_ms": summary([record.tpot for record in done]),
        "itl_ms": summary(numpy.concatenate(gaps) if gaps else []),
        "e2e_ms": summary([record.e2e for record in done]),
        "lateness_ms": summary([record.lateness for record in records]),
    }


def summary(seconds: Iterable[float | None]) -> Summary | None:
    known = numpy.array([one for one in seconds if one is not None], dtype=float) * MILLISECONDS
    if not known.size:
        return None
    p50, p90, p99 = numpy.percentile(known, PERCENTILES).tolist()
    mean, most = float(known.mean()), float(known.max())
    return {"mean": mean, "p50": p50, "p90": p90, "p99": p99, "max": most}


def peak_concurrency(records: Sequence[Record]) -> int:
    """Return the maximum number of requests in flight at one time."""
    began = [(record.began, 1) for record in records]
    ended = [(record.ended, -1) for record in records if record.ended is not None]
    return max(accumulate(change for _, change in sorted(began + ended)), default=0)


def goodput(done: Sequence[Record], duration: float, limits: Mapping[str, float]) -> Goodput | None:
    """Return the requests per second that kept every limit; an empty answer is never good."""
    if not limits:
        return None
    answered = [record for record in done if record.completion_tokens or record.num_events]
    good = sum(all(kept(record, *limit) for limit in limits.items()) for record in answered)
    return {
        "limits_ms": {name: limit * MILLISECONDS for name, limit in limits.items()},
        "num_good": good,
        "requests_per_second": good / duration if duration > 0 else 0.0,
    }


def kept(record: Record, name: str, limit: float) -> bool:
    value: float | None = getattr(record, name)
    if value is None:
        return name == "tpot" and record.completion_tokens == 1
    return value <= limit
