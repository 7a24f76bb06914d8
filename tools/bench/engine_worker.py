"""Decodes with the engine: one question a line, as `decoding.py` asks them."""

import os
import time

from glm_engine.core.engine import Engine, EngineOptions, Request
from tools.bench.processes import answer_all
from tools.bench.prompts import CAPITALS, prompts

POLL_SECONDS = 0.05
MAX_BATCH, MAX_SEQ = 32, 512


def finished_events(engine, num_requests: int) -> list:
    """All events until every request has ended; sleeps between looks at them."""
    events, left = [], num_requests
    while left:
        time.sleep(POLL_SECONDS)
        while some := engine.poll():
            events += some
            left -= sum(event.ends_request for event in some)
    failures = [event.message for event in events if event.kind == "failed"]
    if failures:
        raise RuntimeError(f"{len(failures)} requests failed, the first with: {failures[0]}")
    return events


def steady_rate(times: dict[int, list[float]], warm_up: int) -> float:
    """Tokens per second while every request was past its warm-up and none had ended."""
    begin = max(row[warm_up] for row in times.values())
    end = min(row[-1] for row in times.values())
    return sum(begin < time <= end for row in times.values() for time in row) / (end - begin)


def measure(engine, batch: int, num_tokens: int, warm_up: int, num_steps: int) -> dict:
    """Submit `batch` prompts at once and let them decode together."""
    max_tokens = 1 + warm_up + num_steps
    requests = [
        Request(row, max_tokens=max_tokens, ignore_eos=True) for row in prompts(batch, num_tokens)
    ]
    begin = time.monotonic()
    times = {engine.submit(request): [] for request in requests}
    for event in finished_events(engine, batch):
        if event.kind == "token":
            times[event.request_id].append(event.time_ns / 1e9)
    first = max(row[0] for row in times.values())
    return {
        "prefill_tokens_per_second": batch * num_tokens / (first - begin),
        "decode_tokens_per_second": steady_rate(times, warm_up),
    }


def main() -> None:
    options = EngineOptions(
        model_dir=CAPITALS,
        device="cpu",
        max_batch=MAX_BATCH,
        max_seq=MAX_SEQ,
        num_threads=int(os.environ["BENCH_THREADS"]),
        prefix_cache=False,
    )
    with Engine(options) as engine:
        answer_all(lambda **question: measure(engine, **question))


if __name__ == "__main__":
    main()
