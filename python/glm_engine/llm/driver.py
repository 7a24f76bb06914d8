"""Feeds answers to the engine as fast as its queue takes them, and takes what comes of them."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Collection

from glm_engine.core.engine import Engine, Event
from glm_engine.core.errors import BadInputError, EngineError, GlmError, Status
from glm_engine.core.requests import TokenMask
from glm_engine.llm.sequence import Answer, Batch

WAIT_SECONDS = 0.1
CANCEL_SECONDS = 10
RUNNING_FOR_EACH_PLACE = 2


class Driver:
    """The answers of all calls on one engine, which any threads may make.

    At most `RUNNING_FOR_EACH_PLACE` times `max_batch` answers are on the engine; others wait here.
    A thread that waits takes the events of all; while one does, the others wait for it.
    """

    def __init__(self, engine: Engine, max_batch: int) -> None:
        self.engine = engine
        self.most_running = RUNNING_FOR_EACH_PLACE * max_batch
        self.waiting: deque[Answer] = deque()
        self.running: dict[int, Answer] = {}
        self.changed = threading.Condition()
        self.has_waiter = False

    def add(self, batch: Batch) -> None:
        """Queue the answers of a call."""
        with self.changed:
            self.waiting.extend(batch.all_answers())
            self.submit()

    def submit(self) -> None:
        """Submit what the engine takes, in order; an answer that it refuses fails its call."""
        while self.waiting and len(self.running) < self.most_running:
            answer = self.waiting[0]
            if not answer.batch.is_over:
                try:
                    self.running[self.engine.submit(answer.begin())] = answer
                except GlmError as error:
                    if is_full(error) and self.running:
                        return
                    answer.batch.fail(error)
            if answer.batch.failure is not None:
                answer.batch.num_open -= 1
                answer.batch.wake()
            self.waiting.popleft()

    def advance(self) -> None:
        """Wait for events, a tenth of a second at most, and take them."""
        with self.changed:
            if self.has_waiter:
                self.changed.wait(WAIT_SECONDS)
                return
            self.has_waiter = True
        try:
            self.engine.wait(WAIT_SECONDS)
        except EngineError as error:
            self.fail_all(error)
        finally:
            with self.changed:
                self.has_waiter = False
                self.changed.notify_all()
        self.take_events()

    def fail_all(self, error: EngineError) -> None:
        """End all calls with an error of an engine that can say nothing of them any more."""
        with self.changed:
            batches = {one.batch for one in (*self.waiting, *self.running.values())}
            self.waiting.clear()
            self.running.clear()
            for batch in batches:
                batch.fail(error)
                batch.num_open = 0
                batch.wake()

    def take_events(self) -> None:
        """Take the events that are there, without waiting for any."""
        with self.changed:
            try:
                events = self.engine.poll()
            except EngineError as error:
                self.fail_all(error)
                return
            masks: dict[int, TokenMask] = {}
            touched: dict[Batch, bool] = {}
            for event in events:
                answer = self.running.get(event.request_id)
                if answer is not None:
                    touched[answer.batch] = True
                    self.take(answer, event, masks)
            self.give(masks)
            self.submit()
        for batch in touched:
            batch.wake()

    def take(self, answer: Answer, event: Event, masks: dict[int, TokenMask]) -> None:
        """Take one event; those of a call that failed only say that the engine is done with it."""
        if event.ends_request:
            del self.running[event.request_id]
            masks.pop(event.request_id, None)
        try:
            if answer.batch.failure is None:
                self.hear(answer, event, masks)
        except Exception as error:
            answer.batch.fail(error)
        answer.batch.num_open -= event.ends_request

    def hear(self, answer: Answer, event: Event, masks: dict[int, TokenMask]) -> None:
        """Hand an event to its answer, and take an answer that is over off the engine."""
        if event.kind == "token":
            mask = answer.take_token(event)
            if mask is not None:
                masks[event.request_id] = (event.request_id, *mask)
            if answer.is_stopped:
                self.engine.cancel_quietly(event.request_id)
        elif event.kind == "prompt_token":
            row = (event.token_id, event.logprob, list(event.top_logprobs))
            answer.prompt_rows.append(row)
        elif event.kind == "failed":
            raise EngineError("generate", event.status, event.message)
        else:
            answer.finish(event)

    def give(self, masks: dict[int, TokenMask]) -> None:
        """Give the masks of next tokens together; a request may have ended meanwhile."""
        if not masks:
            return
        try:
            self.engine.set_masks(list(masks.values()))
        except EngineError as error:
            if error.status == Status.GLM_NOT_FOUND:
                return
            for request_id in masks:
                self.running[request_id].batch.fail(error)

    def cancel(self, batch: Batch) -> None:
        """Take what is left of a call off the queue and off the engine."""
        with self.changed:
            if batch.num_open:
                self.drop([batch])

    def cancel_all(self) -> None:
        """Take all calls off the engine."""
        with self.changed:
            self.drop({one.batch for one in (*self.waiting, *self.running.values())})

    def drop(self, batches: Collection[Batch]) -> None:
        for batch in batches:
            batch.fail(BadInputError("the call was cancelled"))
        kept: deque[Answer] = deque()
        for answer in self.waiting:
            if answer.batch in batches:
                answer.batch.num_open -= 1
            else:
                kept.append(answer)
        self.waiting = kept
        for request_id, answer in self.running.items():
            if answer.batch in batches:
                with contextlib.suppress(EngineError):
                    self.engine.cancel_quietly(request_id)
        for batch in batches:
            batch.wake()

    def settle(self, batch: Batch | None = None) -> None:
        """Wait until the engine has let go of a call that was cancelled, or of all."""
        deadline = time.monotonic() + CANCEL_SECONDS
        while self.is_running(batch) and time.monotonic() < deadline:
            self.advance()

    def is_running(self, batch: Batch | None) -> bool:
        """Say whether the engine has a request of a call, or of any."""
        with self.changed:
            return any(batch in (None, answer.batch) for answer in self.running.values())


def is_full(error: GlmError) -> bool:
    """Say whether the engine's queue takes no more for now."""
    return isinstance(error, EngineError) and error.status == Status.GLM_QUEUE_FULL
