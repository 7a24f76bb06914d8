"""One sequence on the engine: its tokens become certain text, and the text deltas of a turn."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from glm_engine.core.errors import Status, name_of
from glm_engine.core.requests import Request
from glm_engine.server.http.api_errors import NO_RETRY, ApiError
from glm_engine.text.dialogue import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    DialogueParser,
    Reasoning,
)
from glm_engine.text.dialogue.parser import Turn as ShownTurn
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import IncrementalDetokenizer

if TYPE_CHECKING:
    from glm_engine.server.guides import Guide
    from glm_engine.server.jobs import Job


Delta = Reasoning | Content | CallBegin | CallArguments | CallEnd
LogprobRow = tuple[int, float, list[tuple[int, float]]]
Ending = tuple[str, int, str]
FINISH_REASONS = {
    "stop_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
}
FAILURE_STATUSES: dict[int, int] = {Status.GLM_DEVICE_ERROR: 503, Status.GLM_INVALID_ARGUMENT: 400}


class LogprobRows:
    """A list of (token id, log-probability, [(token id, log-probability) of the best tokens]).

    A mask that allows few tokens leaves a row fewer of the best than others have.
    """

    __slots__ = ("ends", "ids", "values")

    def __init__(self) -> None:
        self.ids = array("i")
        self.values = array("f")
        self.ends = array("i")

    def append(
        self,
        token_id: int,
        logprob: float,
        best_ids: Sequence[int] = (),
        best_logprobs: Sequence[float] = (),
    ) -> None:
        self.ids.extend((token_id, *best_ids))
        self.values.extend((logprob, *best_logprobs))
        self.ends.append(len(self.ids))

    def extend(
        self, rows: "LogprobRows | tuple[()]", begin: int = 0, end: int | None = None
    ) -> None:
        """Take the rows of another list, or those from `begin` up to `end`."""
        if not rows:
            return
        ends = rows.ends[begin:end]
        first, last = rows.begin_of(begin), ends[-1] if ends else 0
        shift = len(self.ids) - first
        self.ids += rows.ids[first:last]
        self.values += rows.values[first:last]
        self.ends.extend(one + shift for one in ends)

    def part(self, begin: int, end: int | None = None) -> "LogprobRows":
        """Return the rows from `begin` up to `end` as a list of its own."""
        made = LogprobRows()
        made.extend(self, begin, end)
        return made

    def begin_of(self, at: int) -> int:
        return self.ends[at - 1] if at else 0

    def __iter__(self) -> Iterator[LogprobRow]:
        return (self[at] for at in range(len(self)))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, at: int) -> LogprobRow:
        if not 0 <= at < len(self):
            raise IndexError(f"row {at} is out of range for {len(self)} rows")
        begin, end = self.begin_of(at), self.ends[at]
        token_id, *best_ids = self.ids[begin:end]
        logprob, *best_logprobs = self.values[begin:end]
        return token_id, logprob, list(zip(best_ids, best_logprobs, strict=True))


class TokenPlaces:
    """Tokens of a choice whose text no delta has told yet, with their log-probabilities if any."""

    def __init__(self) -> None:
        self.begins, self.ends = array("q"), array("q")
        self.rows = LogprobRows()

    def add(self, text_delta: "TextDelta") -> None:
        """Take the tokens of a text delta."""
        self.begins.extend(begin for begin, _ in text_delta.places)
        self.ends.extend(end for _, end in text_delta.places)
        self.rows.extend(text_delta.logprobs)

    def spelling(self, delta: "Content | Reasoning") -> tuple[int, LogprobRows]:
        """Return the number and the rows of the tokens that spell a delta, the first that are left.

        All up to its end are forgotten.
        """
        begin, count = delta.end - len(delta.text), bisect_left(self.begins, delta.end)
        first = self.first_in(begin, count)
        rows = self.rows.part(first, count)
        del self.begins[:count], self.ends[:count]
        self.rows = self.rows.part(count)
        return count - first, rows

    def first_in(self, begin: int, count: int) -> int:
        """Return the first of `count` tokens that begins at a place or ends behind it."""
        places = zip(self.begins[:count], self.ends, strict=False)
        inside = (token_begin >= begin or end > begin for token_begin, end in places)
        return next((at for at, is_inside in enumerate(inside) if is_inside), count)


Rows = LogprobRows | tuple[()]


@dataclass(slots=True)
class TextDelta:
    """What became certain of a choice since the text delta before.

    `logprobs` holds a row for each of its tokens where they are wanted, `places` where each
    begins and ends in the text of its choice. A token that only completes a character
    begins where that character does. `is_cut`: it is the last, and the model might have gone on.
    `token_ids` are all tokens, the one that ended it among them.
    """

    text: str
    num_tokens: int
    logprobs: Rows
    finish_reason: str | None
    places: list[tuple[int, int]] = field(default_factory=list)
    is_cut: bool = False
    token_ids: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Choice:
    """One sequence on the engine, and how its tokens become text.

    cutting_ids: those of `ending_ids` that end it by the client's wish, not by the model's.
    prompt_rows: where they are wanted, a row for each token of the prompt but the first.
    echo: the text that the answer repeats first.
    """

    index: int
    request: Request
    detokenizer: IncrementalDetokenizer
    matcher: StopMatcher | None
    ending_ids: frozenset[int]
    cutting_ids: frozenset[int] = frozenset()
    shows_ending: bool = False
    lists_ending: bool = False
    counts_prompt: bool = True
    request_id: int = 0
    arrived: list[int] = field(default_factory=list)
    logprobs: LogprobRows = field(default_factory=LogprobRows)
    ending: Ending | None = None
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
    guide: "Guide | None" = None
    prompt_rows: LogprobRows = field(default_factory=LogprobRows)
    echo: str | None = None

    def advance(self) -> Iterator[TextDelta]:
        """Yield a text delta for each token since the last call, or one of the end alone.

        Tokens that a forward pass gave together make the deltas that they would make one by one:
        none comes behind a stop text, or behind the delta for which the reader ends the choice.
        """
        tokens, self.arrived = self.arrived, []
        rows, ending = self.logprobs, self.ending
        if rows:
            self.logprobs = LogprobRows()
        for at in range(len(tokens) or 1):
            is_last = at + 1 >= len(tokens)
            yield self.text_delta(tokens[at : at + 1], rows and rows.part(at, at + 1), is_last)
            if self.finish_reason or self.ending is not ending:
                return

    def text_delta(self, tokens: list[int], rows: LogprobRows, is_last: bool) -> TextDelta:
        """Return the text delta of one token or of none; its text may be empty."""
        text, places = "", list[tuple[int, int]]()
        kept_rows: Rows = ()
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
        return TextDelta(text, len(tokens), kept_rows, reason, places, is_cut, tokens)

    def spelled(self, token_id: int, places: list[tuple[int, int]]) -> str:
        """Return the text that a token makes certain, and note its place."""
        text, begin = self.detokenizer.push(token_id), self.num_characters
        self.num_characters += len(text)
        places.append((begin, self.num_characters))
        return text

    def certain(self, text: str) -> str:
        """Return what no stop text can take back; one that ends within `min_tokens` is none."""
        if not self.matcher:
            return text
        return self.matcher.push(text, self.num_tokens > self.request.min_tokens)

    def finish(self) -> str:
        """Return the text that was held back; ApiError where the choice did not end well."""
        assert self.ending
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


def failure_of(reason: str, status: int, message: str) -> ApiError:
    if reason == "deadline":
        text = "the request timed out before its answer was complete"
        return ApiError(408, text, code="deadline_exceeded", headers=NO_RETRY)
    if reason == "cancelled":
        return ApiError(503, "the server canceled the request", code="cancelled")
    if reason == "refused":
        return ApiError(400, message, code="grammar_error")
    text = f"the engine failed to run this request: {message}"
    return ApiError(FAILURE_STATUSES.get(status, 500), text, code=name_of(status))


class Turn(ShownTurn):
    """Feeds text deltas to the parser.

    num_thought_tokens: how many tokens spell the thought, shown or not.
    """

    def __init__(
        self, parser: "DialogueParser", shows_reasoning: bool = True, takes_one_call: bool = False
    ) -> None:
        super().__init__(parser, shows_reasoning, takes_one_call)
        self.num_thought_tokens = 0
        self.thought_places: TokenPlaces | None = TokenPlaces()

    def take(self, text_delta: TextDelta) -> list[Delta]:
        """Return the deltas of a text delta."""
        deltas = self.parser.push(text_delta.text) if text_delta.text else []
        if text_delta.finish_reason:
            self.is_cut = text_delta.is_cut or text_delta.finish_reason != "stop"
            deltas = [*deltas, *self.parser.finish(self.is_cut)]
        self.count_thought(text_delta, deltas)
        return list(self.shown(deltas))

    def count_thought(self, text_delta: TextDelta, deltas: Iterable[Delta]) -> None:
        """Count the tokens of the thought, which nothing but its text comes before."""
        if self.thought_places is None:
            return
        self.thought_places.add(text_delta)
        for delta in deltas:
            if type(delta) is not Reasoning:
                self.thought_places = None
                return
            self.num_thought_tokens += self.thought_places.spelling(delta)[0]


def deltas_of(job: "Job", turn: Turn, choice: Choice, text_delta: TextDelta) -> list[Delta]:
    """Return what a text delta adds to a turn; a choice of which nothing more is shown is ended."""
    deltas = turn.take(text_delta)
    if turn.is_over and not text_delta.finish_reason:
        job.complete(choice)
    return deltas
