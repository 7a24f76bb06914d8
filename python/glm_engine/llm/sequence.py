"""One answer on its way: from the tokens of the engine to text, chunks and the whole output."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from glm_engine.core.engine import Event, Request
from glm_engine.core.errors import EngineError
from glm_engine.core.runner import Generation, Prompt
from glm_engine.llm.jobs import Job
from glm_engine.llm.outputs import CompletionOutput, Logprob, OutputChunk, PlaceLogprobs
from glm_engine.llm.turn_reader import TurnReader
from glm_engine.text.engine_requests import matcher_of, numbered, parser_of
from glm_engine.text.grammar import Matcher
from glm_engine.text.grammar.free_text import Words
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import GlmTokenizer

FINISH_REASONS = {
    "stop_token": "stop",
    "stop_sequence": "stop",
    "stop_text": "stop",
    "length": "length",
}
STOP, TOOL_CALLS = "stop", "tool_calls"


class Answer:
    """Answer `index` of a job: queued, then running, then with an output.

    prompt_rows: log-probabilities of the prompt's tokens from the second on.
    is_complete: nothing that may still come is shown, although the model goes on.
    """

    def __init__(self, batch: "Batch", job: Job, index: int) -> None:
        self.batch = batch
        self.job = job
        self.index = index
        self.generation: Generation | None = None
        self.matcher: Matcher | None = None
        self.reader = None
        if job.conversation.chat:
            self.reader = TurnReader(parser_of(job.conversation, job.opening), job.takes_one_call)
        self.prompt_rows: list[tuple[int, float, list[tuple[int, float]]]] = []
        self.output: CompletionOutput | None = None
        self.is_complete = False

    def begin(self) -> Request:
        """Return the request, and be ready for its events."""
        job, params = self.job, self.job.params
        request = numbered(job.request, self.index)
        if job.grammar is not None:
            self.matcher = job.grammar.start(job.opening)
            request = replace(request, mask=self.matcher.mask())
        shows_end = params.include_stop_str_in_output
        self.generation = Generation(
            Prompt(request),
            self.batch.tokenizer.detokenizer(params.skip_special_tokens),
            matcher_of(job.conversation, job.opening) or StopMatcher(()),
            0.0,
            frozenset() if shows_end else job.ending_ids,
        )
        return request

    @property
    def is_stopped(self) -> bool:
        """Whether a stop text or the first call has ended it before the engine did."""
        return self.is_complete or (self.generation is not None and self.generation.matcher.stopped)

    def take_token(self, event: Event) -> tuple[int, Words] | None:
        """Take a token of the answer, unless it was over before.

        Returns the place and the mask of the next token, where the engine waits for one.
        """
        if self.generation is None or self.is_stopped:
            return None
        text = self.generation.take_token(event)
        chunk = self.chunk(text, [event.token_id])
        if self.reader is not None:
            self.reader.take(text, chunk)
            self.is_complete = self.reader.is_over
        self.batch.tell(chunk)
        if self.matcher is None or self.is_stopped or event.token_id in self.job.ending_ids:
            return None
        self.matcher.accept(event.token_id)
        return len(self.generation.tokens), self.matcher.mask()

    def finish(self, event: Event) -> None:
        """Take the end of the answer."""
        generation = self.generation
        if generation is None:
            return
        self.batch.num_cached[self.job.number] = event.cached_tokens
        text = generation.end("stop_token" if self.is_complete else event.finish_reason)
        chunk = self.chunk(text, [])
        stated = FINISH_REASONS.get(generation.finish_reason)
        if stated is None:
            raise EngineError("generate", event.status, f"the request ended: {event.finish_reason}")
        last = generation.tokens[-1] if generation.tokens else -1
        is_cut = generation.matcher.stopped or stated != STOP or last in self.job.cutting_ids
        if self.reader is not None:
            self.reader.take(text, chunk)
            self.reader.finish(is_cut, chunk)
            if self.reader.asks_for_calls:
                stated = TOOL_CALLS
        chunk.finish_reason = stated
        chunk.output = self.output = self.whole(generation, stated, last)
        self.batch.tell(chunk)

    def whole(self, generation: Generation, reason: str, last: int) -> CompletionOutput:
        """Return the output of the whole answer."""
        is_stop = reason != "length" and last in self.job.cutting_ids
        output = CompletionOutput(
            index=self.index,
            text=generation.text,
            token_ids=generation.tokens,
            finish_reason=reason,
            stop_reason=generation.matcher.found or (last if is_stop else None),
        )
        if self.job.params.logprobs is not None:
            rows = generation.logprobs
            output.logprobs = [
                self.batch.place_logprobs(
                    row["token_id"],
                    row["logprob"],
                    [(one["token_id"], one["logprob"]) for one in row["top"]],
                )
                for row in rows
            ]
            output.cumulative_logprob = sum(row["logprob"] for row in rows)
        if self.reader is not None:
            self.reader.write(output)
        return output

    def chunk(self, text: str, token_ids: list[int]) -> OutputChunk:
        return OutputChunk(self.job.number, self.index, text, token_ids)


class Batch:
    """The answers of one call.

    keeps_chunks: whether the caller reads them while they come.
    wake: called when there is news.
    """

    def __init__(self, jobs: list[Job], tokenizer: GlmTokenizer, keeps_chunks: bool) -> None:
        self.jobs = jobs
        self.tokenizer = tokenizer
        self.keeps_chunks = keeps_chunks
        self.answers = [[Answer(self, job, index) for index in range(job.params.n)] for job in jobs]
        self.num_open = sum(map(len, self.answers))
        self.num_cached = [0] * len(jobs)
        self.chunks: deque[OutputChunk] = deque()
        self.failure: BaseException | None = None
        self.wake: Callable[[], None] = lambda: None

    @property
    def is_over(self) -> bool:
        """Whether all answers have ended, or one failed."""
        return self.num_open == 0 or self.failure is not None

    def all_answers(self) -> Iterator[Answer]:
        """Yield the answers in the order of their prompts."""
        for answers in self.answers:
            yield from answers

    def tell(self, chunk: OutputChunk) -> None:
        """Keep a chunk that says something for whoever reads them."""
        if self.keeps_chunks and (chunk.text or chunk.token_ids or chunk.finish_reason):
            self.chunks.append(chunk)

    def fail(self, error: BaseException) -> None:
        """End the call with its first error."""
        self.failure = self.failure or error

    def place_logprobs(
        self, token_id: int, logprob: float, best: list[tuple[int, float]]
    ) -> PlaceLogprobs:
        """Return the log-probabilities of one place: the token that stands there, and the best."""
        found = {token_id: Logprob(logprob, None, self.spelled(token_id))}
        for rank, (one, value) in enumerate(best, start=1):
            found[one] = Logprob(value, rank, self.spelled(one))
        return found

    def spelled(self, token_id: int) -> str:
        text: str = self.tokenizer.bytes_of(token_id).decode("utf-8", "replace")
        return text
