"""Runs requests on an engine and turns their events into text and figures."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from glm_engine.core.console import rate
from glm_engine.core.engine import Engine, Event, Request
from glm_engine.core.errors import EngineError, Status
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import IncrementalDetokenizer

if TYPE_CHECKING:
    from glm_engine.text.dialogue.answer_finder import AnswerFinder
    from glm_engine.text.tokenizer import GlmTokenizer
WAIT_SECONDS = 0.1
CANCEL_SECONDS = 10


@dataclass
class Prompt:
    """A request together with what its text must stop at.

    finder: an `AnswerFinder` where the text may begin with a thought, in which nothing stops.
    """

    request: Request
    stop_texts: Sequence[str] = ()
    skip_special_tokens: bool = True
    name: object = None
    finder: "AnswerFinder | None" = None


class TopLogprob(TypedDict):
    """One of the likeliest tokens at the place of a token."""

    token_id: int
    logprob: float


class LogprobRow(TopLogprob):
    """A token that was drawn, and the likeliest in its place."""

    top: list[TopLogprob]


@dataclass
class Generation:
    """One request on its way, and what came of it. Times are monotonic seconds.

    ending_ids: the end tokens where they are no text, special or not.
    """

    prompt: Prompt
    detokenizer: IncrementalDetokenizer
    matcher: StopMatcher
    submitted: float
    ending_ids: frozenset[int] = frozenset()
    tokens: list[int] = field(default_factory=list)
    logprobs: list[LogprobRow] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    cached_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    finish_reason: str = "none"

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt.request.prompt)

    def prefill_rate(self) -> float | None:
        """Prompt tokens per second until the first token was there."""
        if not self.times:
            return None
        return rate(self.prompt_tokens - self.cached_tokens, self.times[0] - self.submitted)

    def decode_rate(self) -> float | None:
        """Tokens per second after the first."""
        if len(self.times) < 2:
            return None
        return rate(len(self.times) - 1, self.times[-1] - self.times[0])

    def take_token(self, event: Event) -> str:
        """Record a token and return the text that became certain with it."""
        self.cached_tokens = event.cached_tokens
        if self.matcher.stopped:
            return ""
        self.tokens.append(event.token_id)
        self.times.append(event.time_ns / 1e9)
        if self.prompt.request.sampling.num_logprobs >= 0:
            top: list[TopLogprob] = [
                {"token_id": number, "logprob": value} for number, value in event.top_logprobs
            ]
            row: LogprobRow = {"token_id": event.token_id, "logprob": event.logprob, "top": top}
            self.logprobs.append(row)
        if event.token_id in self.ending_ids:
            return ""
        return self.certain(self.detokenizer.push(event.token_id))

    def end(self, reason: str) -> str:
        """Record the end and return the text that was still held back."""
        self.finish_reason = "stop_text" if self.matcher.stopped else reason
        return self.certain(self.detokenizer.finish()) + self.add(self.matcher.finish())

    def certain(self, text: str) -> str:
        """Record what no stop text can take back; one that ends within `min_tokens` is none."""
        is_counted = len(self.tokens) > self.prompt.request.min_tokens
        return self.add(self.matcher.push(text, is_counted))

    def add(self, text: str) -> str:
        if text:
            self.pieces.append(text)
        return text


Taken = tuple[Generation, str, bool]


class Runner:
    """Feeds prompts to an engine as fast as its queue takes them."""

    def __init__(self, engine: Engine, tokenizer: "GlmTokenizer") -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.ending_ids = frozenset(engine.info()["eos_tokens"])
        self.live: dict[int, Generation] = {}

    def run(self, prompts: Iterable[Prompt]) -> Generator[Taken, None, None]:
        """Yield (generation, text, is_finished) in the order in which things happen."""
        waiting = deque(prompts)
        try:
            while waiting or self.live:
                self.submit_from(waiting)
                self.engine.wait(WAIT_SECONDS)
                for event in self.engine.poll():
                    yield from self.take(event)
        finally:
            self.cancel_live()

    def run_all(
        self, prompts: Iterable[Prompt], on_finish: Callable[[Generation], object] | None = None
    ) -> list[Generation]:
        """Run prompts to their ends; returns their generations in the given order."""
        prompts = list(prompts)
        done: dict[int, Generation] = {}
        for generation, _, is_finished in self.run(prompts):
            if is_finished:
                done[id(generation.prompt)] = generation
                if on_finish:
                    on_finish(generation)
        return [done[id(prompt)] for prompt in prompts]

    def submit_from(self, waiting: deque[Prompt]) -> None:
        while waiting:
            prompt = waiting[0]
            submitted = time.monotonic()
            try:
                request_id = self.engine.submit(prompt.request)
            except EngineError as error:
                if error.status == Status.GLM_QUEUE_FULL and self.live:
                    return
                raise
            shows_ends = prompt.request.ignore_eos or not prompt.skip_special_tokens
            self.live[request_id] = Generation(
                waiting.popleft(),
                self.tokenizer.detokenizer(prompt.skip_special_tokens),
                StopMatcher(prompt.stop_texts, finder=prompt.finder),
                submitted,
                frozenset() if shows_ends else self.ending_ids,
            )

    def take(self, event: Event) -> Iterator[Taken]:
        generation = self.live.get(event.request_id)
        if generation is None:
            return
        generation.num_draft_tokens = event.num_draft_tokens
        generation.num_accepted_tokens = event.num_accepted_tokens
        if event.kind == "token":
            was_stopped = generation.matcher.stopped
            text = generation.take_token(event)
            if generation.matcher.stopped and not was_stopped:
                self.engine.cancel_quietly(event.request_id)
            yield generation, text, False
            return
        del self.live[event.request_id]
        if event.kind == "failed":
            raise EngineError("generate", event.status, event.message)
        yield generation, generation.end(event.finish_reason), True

    def cancel_live(self) -> None:
        """Cancel what still runs and wait for its end, so that the pages are free.

        What has ended may have said so in an event that was polled and that nobody took any more.
        """
        for request_id in list(self.live):
            if not self.engine.cancel_quietly(request_id):
                del self.live[request_id]
        deadline = time.monotonic() + CANCEL_SECONDS
        while self.live and time.monotonic() < deadline:
            self.engine.wait(WAIT_SECONDS)
            for event in self.engine.poll():
                if event.ends_request:
                    self.live.pop(event.request_id, None)
