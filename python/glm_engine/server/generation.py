"""A job: the choices of one HTTP request, from submission to pieces of certain text."""

import asyncio
import time
from array import array
from dataclasses import dataclass, field, replace

from glm_engine.detokenizer import StopMatcher
from glm_engine.errors import Status, name_of
from glm_engine.server.bridge import Inbox
from glm_engine.server.errors import NO_RETRY, ApiError

FINISH_REASONS = {
    "stop_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
}
PROMPT_ROWS_AT_ONCE = 256


class DisconnectedError(Exception):
    """The client has gone; nobody reads the answer any more."""


@dataclass(slots=True)
class Piece:
    """What became certain of a choice since the piece before.

    `logprobs` holds (token id, log-probability, best tokens) for each of its tokens, `places`
    where each begins and ends in the text of its choice. A token that only completes a character
    begins where that character does. `token_ids` are all tokens, the one that ended it among
    them; `prompt_logprobs` holds the rows of prompt tokens, the first of which has none.
    """

    text: str
    num_tokens: int
    logprobs: list
    finish_reason: str | None
    places: list = field(default_factory=list)
    token_ids: list = field(default_factory=list)
    prompt_logprobs: list = field(default_factory=list)


class PromptRows:
    """Log-probabilities of a prompt's tokens, packed until somebody takes them."""

    def __init__(self, ids):
        self.ids = ids
        self.num_taken = self.num_best = 0
        self.logprobs, self.top_ids, self.top_logprobs = array("f"), array("i"), array("f")

    def add(self, record, num_best):
        self.num_best = num_best
        self.logprobs.append(record["logprob"])
        self.top_ids.frombytes(record["top_ids"][:num_best].tobytes())
        self.top_logprobs.frombytes(record["top_logprobs"][:num_best].tobytes())

    def take(self):
        """Return the next rows, (token id, log-probability, best tokens) each."""
        rows = [] if self.num_taken else [(self.ids[0], None, [])]
        best, most = self.num_best, PROMPT_ROWS_AT_ONCE
        tops = list(zip(self.top_ids[: best * most], self.top_logprobs, strict=False))
        for at, logprob in enumerate(self.logprobs[:most]):
            token_id = self.ids[self.num_taken + len(rows)]
            rows.append((token_id, logprob, tops[at * best : (at + 1) * best]))
        del self.logprobs[:most], self.top_ids[: best * most], self.top_logprobs[: best * most]
        self.num_taken += len(rows)
        return rows


@dataclass(slots=True, eq=False)
class Choice:
    """One sequence on the engine, and how its tokens become text."""

    index: int
    request: object
    detokenizer: object
    matcher: StopMatcher | None
    ending_ids: frozenset
    shows_ending: bool = False
    lists_ending: bool = False
    counts_prompt: bool = True
    request_id: int = 0
    arrived: list = field(default_factory=list)
    logprobs: list = field(default_factory=list)
    ending: tuple | None = None
    num_tokens: int = 0
    num_characters: int = 0
    cached_tokens: int = 0
    token_at: float | None = None
    finish_reason: str | None = None
    guide: object = None
    prompt_rows: PromptRows | None = None

    def list_prompt(self, num_best):
        """Ask for log-probabilities of the prompt's tokens and of the best in each place."""
        self.request = replace(self.request, num_prompt_logprobs=num_best)
        self.prompt_rows = PromptRows(self.request.prompt)

    def has_prompt_rows(self):
        return bool(self.prompt_rows and self.prompt_rows.logprobs)

    def advance(self):
        """Return the piece that the events since the last call make; its text may be empty.

        Rows of a long prompt come a number at a time, before anything else does.
        """
        prompt_rows = self.prompt_rows.take() if self.prompt_rows else []
        if self.has_prompt_rows():
            return Piece("", 0, [], None, prompt_logprobs=prompt_rows)
        tokens, self.arrived = self.arrived, []
        rows, self.logprobs = self.logprobs, []
        texts, kept_rows, places, before = [], [], [], self.num_tokens
        for at, token_id in enumerate(tokens):
            self.num_tokens += 1
            is_shown = self.shows_ending or token_id not in self.ending_ids
            if is_shown:
                texts.append(self.certain(self.spelled(token_id, places)))
            elif rows and self.lists_ending:
                places.append((self.num_characters, self.num_characters))
            if rows and (is_shown or self.lists_ending):
                kept_rows.append((token_id, *rows[at]))
            if self.matcher and self.matcher.stopped:
                self.finish_reason = "stop"
                break
        if self.ending and not self.finish_reason:
            texts.append(self.finish())
        count, text = self.num_tokens - before, "".join(texts)
        reason, taken = self.finish_reason, tokens[:count]
        return Piece(text, count, kept_rows, reason, places, taken, prompt_rows)

    def spelled(self, token_id, places):
        """Return the text that a token makes certain, and note its place."""
        text, begin = self.detokenizer.push(token_id), self.num_characters
        self.num_characters += len(text)
        places.append((begin, self.num_characters))
        return text

    def certain(self, text):
        """Return what no stop text can take back; one counts only behind `min_tokens` tokens."""
        if self.matcher and self.num_tokens > self.request.min_tokens:
            return self.matcher.push(text)
        return text

    def finish(self):
        """Return the text that was held back; ApiError where the choice did not end well."""
        reason, status, message = self.ending
        if reason not in FINISH_REASONS:
            raise failure_of(reason, status, message)
        rest = self.certain(self.detokenizer.finish())
        if self.matcher:
            rest += self.matcher.finish()
        stopped = self.matcher and self.matcher.stopped
        self.finish_reason = "stop" if stopped else FINISH_REASONS[reason]
        return rest


def failure_of(reason, status, message):
    if reason == "deadline":
        text = "the request's deadline passed before its answer was complete"
        return ApiError(408, text, code="deadline_exceeded", headers=NO_RETRY)
    if reason == "cancelled":
        return ApiError(503, "the server cancelled the request", code="cancelled")
    if reason == "refused":
        return ApiError(400, message, code="grammar_error")
    lost = status == Status.GLM_DEVICE_ERROR
    text = f"the engine failed this request: {message}"
    return ApiError(503 if lost else 500, text, code=name_of(status))


class Job:
    """The choices of one request; leaving it takes what still runs off the engine."""

    def __init__(self, service, choices, visit):
        self.bridge = service.bridge
        self.metrics = service.metrics
        self.choices = choices
        self.visit = visit
        self.inbox = Inbox()
        self.is_abandoned = False
        self.failure = None

    def submit(self):
        """Queue all choices, or none of them where the engine refuses one."""
        try:
            for choice in self.choices:
                self.bridge.submit(choice, self.inbox)
        except BaseException:
            self.cancel()
            raise

    def cancel(self):
        for choice in self.choices:
            if choice.request_id:
                self.bridge.cancel(choice)

    def complete(self, choice):
        """End a choice whose answer is whole, although the model might go on."""
        self.bridge.cancel(choice)
        choice.ending = ("stop_token", Status.GLM_OK, "")
        self.inbox.add(choice)

    def abandon(self):
        """Give up because nobody reads any more."""
        self.is_abandoned = True
        self.cancel()
        self.inbox.wake()

    def fail(self, error):
        """End every choice with an error, for a reason outside the engine."""
        self.failure = error
        self.cancel()
        self.inbox.wake()

    async def wakes(self):
        """Yield lists of (choice, piece); an empty list where the job was only woken."""
        num_open = len(self.choices)
        while num_open:
            taken = await self.inbox.take()
            if self.is_abandoned:
                raise DisconnectedError
            if self.failure:
                raise self.failure
            pieces = [(choice, choice.advance()) for choice in taken if not choice.finish_reason]
            self.measure(pieces)
            for choice, piece in pieces:
                if piece.finish_reason:
                    num_open -= 1
                    self.bridge.cancel(choice)
            yield pieces
            for choice in [choice for choice, _ in pieces if choice.has_prompt_rows()]:
                self.inbox.add(choice)
                await asyncio.sleep(0)
        self.visit.finish_reason = ",".join(sorted({one.finish_reason for one in self.choices}))

    def measure(self, pieces):
        now = time.monotonic()
        for choice, piece in pieces:
            if choice.token_at is None and (piece.num_tokens or piece.finish_reason):
                self.measure_prompt(choice, now)
            if not piece.num_tokens:
                continue
            self.visit.take_tokens(piece.num_tokens, now)
            self.metrics.take_tokens(piece.num_tokens, now, choice.token_at, self.visit)
            choice.token_at = now

    def measure_prompt(self, choice, now):
        if choice.counts_prompt:
            self.visit.cached_tokens += choice.cached_tokens
            self.metrics.take_prompt(len(choice.request.prompt), choice.cached_tokens, now)
