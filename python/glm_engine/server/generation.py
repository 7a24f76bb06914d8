"""A job: the choices of one HTTP request, from submission to pieces of certain text."""

import time
from dataclasses import dataclass, field, replace

from glm_engine.core.errors import Status, name_of
from glm_engine.server.bridge import Inbox
from glm_engine.server.errors import NO_RETRY, ApiError
from glm_engine.server.logprob_rows import LogprobRows
from glm_engine.text.detokenizer import StopMatcher

NANOSECONDS = 1_000_000_000
FINISH_REASONS = {
    "stop_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
}


FAILURE_STATUSES = {Status.GLM_DEVICE_ERROR: 503, Status.GLM_INVALID_ARGUMENT: 400}


class DisconnectedError(Exception):
    """The client has gone; nobody reads the answer any more."""


@dataclass(slots=True)
class Piece:
    """What became certain of a choice since the piece before.

    `logprobs` holds a row for each of its tokens where they are wanted, `places` where each
    begins and ends in the text of its choice. A token that only completes a character
    begins where that character does. `is_cut`: it is the last, and the model might have gone on.
    `token_ids` are all tokens, the one that ended it among them.
    """

    text: str
    num_tokens: int
    logprobs: LogprobRows | tuple
    finish_reason: str | None
    places: list = field(default_factory=list)
    is_cut: bool = False
    token_ids: list = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Choice:
    """One sequence on the engine, and how its tokens become text.

    cutting_ids: those of `ending_ids` that end it by the client's wish, not by the model's.
    """

    index: int
    request: object
    detokenizer: object
    matcher: StopMatcher | None
    ending_ids: frozenset
    cutting_ids: frozenset = frozenset()
    shows_ending: bool = False
    lists_ending: bool = False
    counts_prompt: bool = True
    request_id: int = 0
    arrived: list = field(default_factory=list)
    logprobs: LogprobRows = field(default_factory=LogprobRows)
    ending: tuple | None = None
    num_tokens: int = 0
    num_characters: int = 0
    cached_tokens: int = 0
    num_predicted_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    token_at: float | None = None
    started_ns: int = 0
    finish_reason: str | None = None
    is_cut: bool = False
    guide: object = None
    prompt_rows: LogprobRows | None = None

    def list_prompt(self, num_best):
        """Ask for log-probabilities of the prompt's tokens and of the best in each place.

        `prompt_rows` will hold them: a row for each token but the first, which has none.
        """
        self.request = replace(self.request, num_prompt_logprobs=num_best)
        self.prompt_rows = LogprobRows()

    def advance(self):
        """Yield a piece for each token since the last call, or one of the end alone.

        Tokens that a forward pass gave together make the pieces that they would make one by one:
        none comes behind a stop text, or behind the piece for which the reader ends the choice.
        """
        tokens, self.arrived = self.arrived, []
        rows, ending = self.logprobs, self.ending
        if rows:
            self.logprobs = LogprobRows()
        for at in range(len(tokens) or 1):
            is_last = at + 1 >= len(tokens)
            yield self.piece(tokens[at : at + 1], rows and rows.part(at, at + 1), is_last)
            if self.finish_reason or self.ending is not ending:
                return

    def piece(self, tokens, rows, is_last):
        """Return the piece of one token or of none; its text may be empty."""
        text, places, kept_rows = "", [], ()
        for token_id in tokens:
            self.num_tokens += 1
            self.is_cut = token_id in self.cutting_ids
            is_shown = self.shows_ending or token_id not in self.ending_ids
            if is_shown:
                text = self.certain(self.spelled(token_id, places))
            elif rows and self.lists_ending:
                places.append((self.num_characters, self.num_characters))
            if rows and (is_shown or self.lists_ending):
                kept_rows = rows
        if self.matcher and self.matcher.stopped:
            self.finish_reason, self.is_cut = "stop", True
        elif self.ending and is_last:
            text += self.finish()
        reason, is_cut = self.finish_reason, self.is_cut
        return Piece(text, len(tokens), kept_rows, reason, places, is_cut, tokens)

    def spelled(self, token_id, places):
        """Return the text that a token makes certain, and note its place."""
        text, begin = self.detokenizer.push(token_id), self.num_characters
        self.num_characters += len(text)
        places.append((begin, self.num_characters))
        return text

    def certain(self, text):
        """Return what no stop text can take back; one that ends within `min_tokens` is none."""
        if not self.matcher:
            return text
        return self.matcher.push(text, self.num_tokens > self.request.min_tokens)

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
        self.is_cut = bool(stopped) or self.is_cut or self.finish_reason != "stop"
        return rest


def failure_of(reason, status, message):
    if reason == "deadline":
        text = "the request timed out before its answer was complete"
        return ApiError(408, text, code="deadline_exceeded", headers=NO_RETRY)
    if reason == "cancelled":
        return ApiError(503, "the server canceled the request", code="cancelled")
    if reason == "refused":
        return ApiError(400, message, code="grammar_error")
    text = f"the engine failed to run this request: {message}"
    return ApiError(FAILURE_STATUSES.get(status, 500), text, code=name_of(status))


class Job:
    """The choices of one request; leaving it takes what still runs off the engine."""

    def __init__(self, service, choices, visit):
        self.bridge = service.bridge
        self.metrics = service.metrics
        self.choices = choices
        self.visit = visit
        visit.choices = choices
        self.inbox = Inbox()
        self.is_abandoned = False
        self.failure = None

    def submit(self):
        """Queue all choices, or none of them where the engine refuses one."""
        self.visit.submitted_at = time.monotonic()
        try:
            for choice in self.choices:
                self.bridge.submit(choice, self.inbox)
        except BaseException:
            self.cancel()
            raise

    def cancel(self):
        for choice in self.choices:
            if choice.request_id and self.bridge.cancel(choice):
                self.metrics.finished["abort"] += 1

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
        """Yield iterators over (choice, piece), to be read to the end; none if only woken."""
        num_open = len(self.choices)
        while num_open:
            taken = await self.inbox.take()
            if self.is_abandoned:
                raise DisconnectedError
            if self.failure:
                raise self.failure
            yield self.pieces(taken)
            num_open = sum(not one.finish_reason for one in self.choices)
        self.visit.finish_reason = ",".join(sorted({one.finish_reason for one in self.choices}))

    def pieces(self, choices):
        """Yield the pieces of choices with news, and measure the tokens of each choice together."""
        now = time.monotonic()
        for choice in choices:
            if choice.finish_reason:
                continue
            num_before = choice.num_tokens
            for piece in self.advance(choice, now):
                yield choice, piece
            if count := choice.num_tokens - num_before:
                self.visit.take_tokens(count, now)
                self.metrics.take_tokens(count, now, choice.token_at, self.visit)
                choice.token_at = now

    def advance(self, choice, now):
        """Yield the pieces of a choice, and take note of its beginning and its end."""
        is_new = choice.token_at is None
        try:
            for piece in choice.advance():
                if is_new and (piece.num_tokens or piece.finish_reason):
                    is_new = False
                    self.measure_start(choice, now)
                if piece.finish_reason:
                    self.metrics.finished[piece.finish_reason] += 1
                    self.bridge.cancel(choice)
                yield piece
        except ApiError:
            self.metrics.finished["error"] += 1
            raise

    def measure_start(self, choice, now):
        """Count what is known of a choice with its first token, or its end without one."""
        visit, started_at = self.visit, choice.started_ns / NANOSECONDS
        self.metrics.take_start(started_at - visit.submitted_at, now - started_at, now)
        visit.started_at = visit.started_at or started_at
        if choice.counts_prompt:
            visit.cached_tokens += choice.cached_tokens
            self.metrics.take_prompt(len(choice.request.prompt), choice.cached_tokens, now)
