"""Sends the same requests to an engine in this process, for comparison with a server."""

import time
from collections.abc import Sequence
from typing import Protocol

from glm_engine.core.engine import Engine
from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.core.requests import Event, Request, Sampling
from glm_engine.load.arrived import Arrived
from glm_engine.load.occupancy import LOOK_SECONDS, gauges_of_engine
from glm_engine.load.records import COMPLETED, Outcome, Record
from glm_engine.load.worker import Change, ignore_interrupts
from glm_engine.load.workload import Ask, is_chat

WAIT_SECONDS = 0.05
FAILED = "failed"
REFUSALS: dict[int, str] = {Status.GLM_QUEUE_FULL: "429", Status.GLM_INVALID_ARGUMENT: "400"}


class Tokenizer(Protocol):
    """What turns text into the ids of a model."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a text."""


class Feeding:
    """Submits asks when they are due and records the engine's events as a client would.

    `on_change` takes 1 when a request is submitted and -1 when it ends.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[tuple[float, Request]],
        max_concurrency: int | None,
        on_change: Change,
    ) -> None:
        self.engine, self.on_change = engine, on_change
        self.waiting = list(reversed(requests))
        self.limit = max_concurrency or len(requests)
        self.live: dict[int, tuple[Record, Arrived]] = {}
        self.rows: list[tuple[float, ...]] = []
        self.outcome = Outcome(time.monotonic())

    def run(self) -> Outcome:
        began = time.process_time()
        try:
            while self.waiting or self.live:
                self.submit_due()
                self.engine.wait(self.patience())
                for event in self.engine.poll():
                    self.take(event)
                self.look()
        except KeyboardInterrupt:
            ignore_interrupts()
            self.outcome.is_interrupted = True
            self.cancel_live()
        self.outcome.cpu_seconds = time.process_time() - began
        return self.outcome

    def look(self) -> None:
        """Another row of gauges where the last one is old."""
        now = time.monotonic()
        if not self.rows or now - self.rows[-1][0] >= LOOK_SECONDS:
            self.rows.append((now, *gauges_of_engine(self.engine)))

    def patience(self) -> float:
        if not self.waiting or len(self.live) >= self.limit:
            return WAIT_SECONDS
        ahead = self.outcome.start + self.waiting[-1][0] - time.monotonic()
        return min(max(ahead, 0.0), WAIT_SECONDS)

    def submit_due(self) -> None:
        while self.waiting and len(self.live) < self.limit:
            due, request = self.waiting[-1]
            if self.outcome.start + due > time.monotonic():
                return
            self.waiting.pop()
            self.submit(
                Record(self.outcome.start + due, request.max_tokens, time.monotonic()), request
            )

    def submit(self, record: Record, request: Request) -> None:
        self.outcome.records.append(record)
        self.on_change(1)
        record.prompt_tokens = len(request.prompt)
        try:
            self.live[self.engine.submit(request)] = (record, Arrived())
        except EngineError as error:
            if error.status not in REFUSALS:
                raise
            record.outcome, record.message = REFUSALS[error.status], str(error)
            record.ended = time.monotonic()
            self.on_change(-1)

    def take(self, event: Event) -> None:
        if event.request_id not in self.live:
            return
        record, arrived = self.live[event.request_id]
        now = event.time_ns / 1e9
        if event.kind == "token":
            arrived.add(now)
            record.completion_tokens += 1
            record.cached_tokens = event.cached_tokens
            return
        del self.live[event.request_id]
        arrived.fill(record)
        record.outcome = COMPLETED if event.kind == "finished" else FAILED
        record.message, record.ended = event.message, now
        self.on_change(-1)

    def cancel_live(self) -> None:
        for request_id, (record, arrived) in self.live.items():
            arrived.fill(record)
            record.ended = time.monotonic()
            self.engine.cancel_quietly(request_id)


def make_request(tokenizer: Tokenizer, ask: Ask, temperature: float, ignore_eos: bool) -> Request:
    """The engine's request of an ask; text becomes ids."""
    if is_chat(ask.prompt):
        raise BadInputError("--engine accepts text or token-id prompts, not chat messages")
    prompt = tokenizer.encode(ask.prompt) if isinstance(ask.prompt, str) else ask.prompt
    return Request(
        prompt,
        max_tokens=ask.max_tokens,
        min_tokens=ask.max_tokens if ignore_eos else 0,
        sampling=Sampling(temperature=temperature),
        ignore_eos=ignore_eos,
    )
