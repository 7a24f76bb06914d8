"""Runs requests of random tokens and measures the engine's steps."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from random import Random
from statistics import median
from typing import Any

from glm_engine.core import acceptance
from glm_engine.core.engine import Engine, State
from glm_engine.core.errors import GlmError
from glm_engine.core.requests import Event, Request, Sampling

WARM_UP_STEPS = 10
SPARE_STEPS = 64
SPARE_LENGTH = 0.5
ATTEMPTS = 3
PREFILL_REPEATS = 3
WAIT_SECONDS = 0.05
MILLION = 1e6
GREEDY = Sampling()
Info = Mapping[str, Any]
Step = Mapping[str, int]
"""A forward pass as `Engine.take_steps` describes it."""
Figures = dict[str, Any]
"""A row of the report."""


class RequestFailedError(GlmError):
    """A measured request failed, so the figure would be wrong."""


def random_prompt(generator: Random, vocab_size: int, length: int) -> list[int]:
    return [generator.randrange(vocab_size) for _ in range(length)]


def poll(engine: Engine) -> list[Event]:
    """Return the events since the last call, or of the next WAIT_SECONDS.

    Raises `RequestFailedError` if a request has failed.
    """
    engine.wait(WAIT_SECONDS)
    events = engine.poll()
    for event in events:
        if event.kind == "failed":
            raise RequestFailedError(f"a measured request failed: {event.message}")
    return events


def drain(
    engine: Engine,
    num_requests: int,
    take_token: Callable[[Event], object],
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """Poll until all requests have ended or `stop` returns true; give tokens to `take_token`."""
    left = num_requests
    while left and not stop():
        for event in poll(engine):
            if event.kind == "finished":
                left -= 1
            else:
                take_token(event)


def submit_all(
    engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: int, sampling: Sampling
) -> list[int]:
    return [
        engine.submit(Request(one, max_tokens=max_tokens, sampling=sampling, ignore_eos=True))
        for one in prompts
    ]


def output_length(batch: int, context: int, num_steps: int, max_step_tokens: int) -> int:
    """Return the output tokens that keep every request running until the last step is measured.

    The spare tokens cover steps between the submission of the first and the last request.
    """
    prefill_steps = math.ceil(batch * context / max(1, max_step_tokens - batch)) + batch
    return prefill_steps + WARM_UP_STEPS + num_steps + SPARE_STEPS


def tokens_per_step(max_draft_tokens: int, acceptance_length: float | None) -> float:
    """Return how many tokens a step gives a request at most: by chance, where that is forced."""
    most = max_draft_tokens + 1
    return min(most, acceptance_length + SPARE_LENGTH) if acceptance_length else most


def pages_needed(batch: int, context: int, length: int, page_size: int) -> int:
    return batch * math.ceil((context + length) / page_size)


class Decoding:
    """One batch size and context: prompts are prefilled, then all requests decode together.

    most_tokens: how many tokens a step may give a request, more than 1 with draft tokens.
    """

    def __init__(
        self,
        engine: Engine,
        generator: Random,
        batch: int,
        context: int,
        num_steps: int,
        sampling: Sampling = GREEDY,
        most_tokens: float = 1,
    ):
        self.engine, self.batch, self.context, self.num_steps = engine, batch, context, num_steps
        self.info: Info = engine.info()
        self.sampling = sampling
        length = output_length(batch, context, num_steps, self.info["max_step_tokens"])
        self.length = min(math.ceil(length * most_tokens), self.info["max_seq"] - context)
        self.generator = generator
        self.drafts: Mapping[str, int] = {}
        self.forget()

    def forget(self) -> None:
        """Start with no step known, and no token."""
        self.steps: list[Step] = []
        self.tokens: defaultdict[int, Counter[int]] = defaultdict(Counter)

    def refusal(self) -> str | None:
        """Return why this point does not fit the engine's sizes, or None."""
        if self.length < WARM_UP_STEPS + 3:
            wanted = self.context + WARM_UP_STEPS + 3
            return f"needs max_seq {wanted}, have {self.info['max_seq']}"
        if self.batch > self.info["max_batch"]:
            return f"needs max_batch {self.batch}, have {self.info['max_batch']}"
        length = self.length + self.info["max_draft_tokens"]
        needed = pages_needed(self.batch, self.context, length, self.info["page_size"])
        if needed > self.info["total_pages"]:
            return f"needs {needed} KV-cache pages, have {self.info['total_pages']}"
        return None

    def take(self, num_steps: int) -> bool:
        """Take note of steps; say whether so many of them were full."""
        self.steps.extend(self.engine.take_steps())
        return len(self.full_steps()) >= num_steps

    def follow(self, requests: Sequence[int], num_steps: int) -> None:
        """Wait until so many full steps of the requests are known."""
        drain(self.engine, len(requests), self.take_token, lambda: self.take(num_steps))

    def take_token(self, event: Event) -> None:
        self.tokens[event.time_ns][event.request_id] += 1

    def full_steps(self) -> list[Step]:
        """Return the steps that hold decode rows alone and gave each request a token or more."""
        return [
            step
            for step in self.steps
            if step["num_decode_tokens"] == step["num_tokens"]
            and len(self.tokens[step["landed_ns"]]) == self.batch
        ]

    def count_tokens(self, steps: Sequence[Step]) -> int:
        """Return how many tokens some steps gave."""
        return sum(self.tokens[step["landed_ns"]].total() for step in steps)

    def prompts(self) -> list[list[int]]:
        vocab_size = self.engine.vocab_size
        return [random_prompt(self.generator, vocab_size, self.context) for _ in range(self.batch)]

    def start(self) -> list[int]:
        self.forget()
        prompts = self.prompts()
        self.engine.take_steps()
        return submit_all(self.engine, prompts, self.length, self.sampling)

    def finish(self, requests: Sequence[int]) -> None:
        for request in requests:
            self.engine.cancel_quietly(request)
        while self.engine.info()["live_requests"]:
            self.engine.wait(WAIT_SECONDS)
            self.engine.poll()
        self.engine.poll()

    def run(self) -> Figures:
        for _ in range(ATTEMPTS):
            window = self.window()
            if len(window) >= 2:
                return self.figures(window)
        raise RequestFailedError(
            f"batch {self.batch} at context {self.context}: only {len(window)} decode steps "
            "included all requests; the measurement needs at least 2"
        )

    def window(self) -> list[Step]:
        """Run the requests; return the full decode steps after the warm-up."""
        num_steps = WARM_UP_STEPS + self.num_steps
        requests = self.start()
        self.drafts = self.engine.info()
        self.follow(requests, num_steps)
        self.drafts = acceptance.gained(self.engine.info(), self.drafts)
        self.take(num_steps)
        self.finish(requests)
        return self.full_steps()[WARM_UP_STEPS:][: self.num_steps + 1]

    def profile(self) -> list[Figures]:
        """Return the device time of each operation, from events around it in eager steps."""
        num_steps = min(2 * WARM_UP_STEPS, self.length) - WARM_UP_STEPS
        if self.info["speculate"]:
            return self.profile_of_requests(num_steps)
        samplings = [self.sampling] * self.batch
        with ExitStack() as opened:
            states = [self.open_state(opened, prompt) for prompt in self.prompts()]
            self.engine.run_batch_decode(states, samplings, WARM_UP_STEPS)
            self.engine.begin_profile()
            self.engine.run_batch_decode(states, samplings, num_steps)
            return shared_by(num_steps, self.engine.end_profile())

    def profile_of_requests(self, num_steps: int) -> list[Figures]:
        """Return the same with draft tokens, which a state never has and a request has."""
        requests = self.start()
        self.follow(requests, WARM_UP_STEPS)
        self.engine.begin_profile()
        self.follow(requests, WARM_UP_STEPS + num_steps)
        profile = self.engine.end_profile()
        self.finish(requests)
        return shared_by(max(1, profile["num_steps"]), profile)

    def open_state(self, opened: ExitStack, prompt: Sequence[int]) -> State:
        state, _ = self.engine.prefill(prompt)
        opened.callback(state.close)
        return state

    def figures(self, window: Sequence[Step]) -> Figures:
        times = [step["landed_ns"] for step in window]
        spans = [later - earlier for earlier, later in pairwise(times)]
        measured = window[1:]
        middle = self.steps.index(window[len(window) // 2])
        produced = self.count_tokens(self.steps[:middle])
        return {
            "batch": self.batch,
            "context": self.context,
            "mean_context": self.context + produced / self.batch,
            "num_steps": len(measured),
            "rows_per_step": median(step["num_tokens"] for step in measured),
            "tokens_per_second": self.token_rate(measured, spans),
            **self.acceptance(),
            "step_ms": median(spans) / MILLION,
            "device_ms": median(step["device_ns"] for step in measured) / MILLION,
            "plan_ms": median(step["plan_ns"] for step in measured) / MILLION,
            "launch_ms": median(step["launch_ns"] for step in measured) / MILLION,
            "graph_steps": sum(step["is_graph"] for step in measured),
            "occupancy": self.batch / self.info["max_batch"],
            "kv_utilisation": self.kv_utilisation(measured, produced),
        }

    def token_rate(self, measured: Sequence[Step], spans: Sequence[int]) -> float:
        """Return tokens per second, where each step takes the median time of those of its size."""
        by_rows = defaultdict[int, list[int]](list)
        for step, span in zip(measured, spans, strict=True):
            by_rows[step["num_tokens"]].append(span)
        nanoseconds = sum(len(some) * median(some) for some in by_rows.values())
        return self.count_tokens(measured) / nanoseconds * 1e9

    def acceptance(self) -> Figures:
        if not self.info["speculate"]:
            return {}
        return {"mean_acceptance_length": acceptance.acceptance_length(self.drafts)}

    def always_predicts(self) -> bool:
        return acceptance.speculation_of(self.info) == "mtp"

    def kv_utilisation(self, measured: Sequence[Step], produced: int) -> float:
        """Return cached tokens over the capacity of the pages that requests own."""
        pages = median(step["owned_pages"] for step in measured)
        tokens = self.batch * self.context + produced
        capacity: float = pages * self.info["page_size"]
        return min(1.0, tokens / capacity)


def shared_by(count: int, profile: Mapping[str, Any]) -> list[Figures]:
    """Return calls and milliseconds of each operation, divided by `count`, longest first."""
    rows = [
        {
            "name": row["name"],
            "calls": row["num_calls"] / count,
            "ms": row["nanoseconds"] / count / MILLION,
        }
        for row in profile["operations"]
    ]
    return sorted(rows, key=lambda row: -row["ms"])


def prefill(engine: Engine, generator: Random, length: int) -> Figures:
    """Return the prefill figures of one prompt alone: the median of a few runs."""
    runs = [prefill_once(engine, generator, length) for _ in range(PREFILL_REPEATS)]
    runs.sort(key=lambda run: run["seconds"])
    return runs[len(runs) // 2]


def prefill_once(engine: Engine, generator: Random, length: int) -> Figures:
    prompt = random_prompt(generator, engine.vocab_size, length)
    engine.take_steps()
    began = time.monotonic()
    engine.submit(Request(prompt, max_tokens=1, ignore_eos=True))
    tokens: list[Event] = []
    drain(engine, 1, tokens.append)
    seconds = tokens[0].time_ns / 1e9 - began
    steps = engine.take_steps()
    device_ns = sum(step["device_ns"] for step in steps)
    return {
        "tokens": length,
        "steps": len(steps),
        "seconds": seconds,
        "device_seconds": device_ns / 1e9,
        "tokens_per_second": length / seconds,
    }


def profile_prefill(engine: Engine, generator: Random, length: int) -> list[Figures]:
    """Return the device time of each operation while one prompt is prefilled alone."""
    prompt = random_prompt(generator, engine.vocab_size, length)
    engine.begin_profile()
    state, _ = engine.prefill(prompt)
    state.close()
    return shared_by(1, engine.end_profile())
