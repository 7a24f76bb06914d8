"""One answer on its way through a grammar."""

from typing import TYPE_CHECKING, NamedTuple

import numpy

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.tags import THINK_END, Opening
from glm_engine.text.grammar.cost_limits import first_line
from glm_engine.text.grammar.free_text import FreeText, Words, has, only_token

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from glm_engine.text.grammar.vocabulary import Vocabulary
MOST_STARTED = 256


class Grammar:
    """A compiled grammar; any number of answers may go through it at once.

    What it holds grows with what answers make of it, up to its limits, and where it reaches one, it
    fails for all of them: who keeps it for others asks `is_fresh`.
    """

    def __init__(self, vocabulary: "Vocabulary", state: "LLMatcher") -> None:
        self.vocabulary = vocabulary
        self.state = state
        self.num_started = 0
        self.has_failed = False

    @property
    def is_fresh(self) -> bool:
        return not self.has_failed and self.num_started < MOST_STARTED

    def start(self, opening: Opening = Opening.ANSWER) -> "Matcher":
        """Return a matcher at the beginning; a thought is free until `</think>` has come."""
        if opening is Opening.THOUGHT and self.vocabulary.thought is None:
            path = self.vocabulary.tokenizer.path.name
            raise BadInputError(
                f"{path}: no {THINK_END} token; a grammar that starts after thinking needs one"
            )
        self.num_started += 1
        return Matcher(self, opening)


class Place(NamedTuple):
    """Where a matcher stands: the tokens that its grammar has taken, and what it keeps itself."""

    num_consumed: int
    in_thought: bool
    may_think: bool
    must_think: bool
    free_text: FreeText | None
    num_spelled: int


class Matcher:
    """Says which token may come next, and takes the one that came.

    opening: whether the answer comes at once, after a thought that is open, or after one that the
    model may open with `<think>`, perhaps on a line of its own. Until `</think>` a thought's text
    is free, but it neither ends nor calls; the grammar holds for what comes after.
    forced: the one token that the last mask allows, None where the text is free.
    """

    def __init__(self, grammar: Grammar, opening: Opening = Opening.ANSWER) -> None:
        self.grammar = grammar
        self.opening = opening
        self.vocabulary = vocabulary = grammar.vocabulary
        self.state = grammar.state.deep_copy()
        self.in_thought = opening is Opening.THOUGHT
        self.may_think = opening is Opening.EITHER and vocabulary.can_open_thoughts
        self.must_think = False
        self.free_text = vocabulary.thought if self.in_thought else None
        self.num_spelled = 0
        self.num_consumed = 0
        self.forced: int | None = None

    def after(self, tokens: list[int]) -> "Matcher":
        """Return a new matcher that has taken these tokens."""
        found = Matcher(self.grammar, self.opening)
        for token_id in tokens:
            found.accept(token_id)
        return found

    def place(self) -> Place:
        return Place(*(getattr(self, name) for name in Place._fields))

    def rollback(self, place: Place) -> None:
        """Go back to a place; no token since may have begun a thought or ended the text."""
        self.state.rollback(self.num_consumed - place.num_consumed)
        for name, value in zip(Place._fields, place, strict=True):
            setattr(self, name, value)

    def can_take_back(self, token_id: int) -> bool:
        """Say whether `rollback` could undo this token."""
        return not self.may_think and token_id not in self.vocabulary.ending_ids

    def mask(self) -> Words:
        """Return uint32 words, bit t % 32 of word t / 32 for token t."""
        self.forced = None
        words: Words
        if self.in_thought:
            assert self.free_text is not None
            words = self.free_text.masks[self.num_spelled]
            return words
        if self.must_think:
            return self.vocabulary.mask_of(self.vocabulary.think_id)
        words = self.answer_mask()
        if self.may_think:
            words |= self.vocabulary.mask_of(self.vocabulary.think_id, self.vocabulary.newline_id)
        return words

    def answer_mask(self) -> Words:
        words = numpy.zeros(self.vocabulary.num_words, dtype=numpy.uint32)
        self.state.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.require_state("the next token")
        self.forced = only_token(words)
        if self.forced is not None and self.misspells(self.forced):
            self.forced = None
            words = self.vocabulary.beginnings(self.state.compute_ff_bytes())
        if self.free_text is not None:
            words &= self.free_text.masks[self.num_spelled]
            if not words.any():
                tags = b" or ".join(self.free_text.tags).decode()
                raise BadInputError(
                    "the grammar allows no next token: every continuation would put "
                    f"{tags} in the output"
                )
        return words

    def misspells(self, token_id: int) -> bool:
        """Say whether the one token allowed is an added one that the grammar does not take.

        llguidance offers such a token where the text that must come spells it in letters.
        """
        if token_id not in self.vocabulary.added_ids:
            return False
        if token_id in self.vocabulary.ending_ids and self.state.is_accepting():
            return False
        return self.state.validate_tokens([token_id]) == 0

    def accept(self, token_id: int) -> None:
        """Take the token that came; one that the mask forbids is an error."""
        if self.may_think and self.opens(token_id):
            return
        if self.thinks:
            if not has(self.mask(), token_id):
                raise BadInputError(f"token {token_id} is not allowed while the model is thinking")
        else:
            self.state.consume_token(token_id)
            self.num_consumed += 1
            self.require_state(f"token {token_id}")
        self.follow(token_id)

    def opens(self, token_id: int) -> bool:
        """Take what may stand before an answer; say whether it is none of the answer's."""
        if token_id == self.vocabulary.think_id:
            self.state.reset()
            self.num_consumed = 0
            self.in_thought, self.free_text = True, self.vocabulary.thought
            self.may_think = self.must_think = False
            return True
        if self.must_think:
            return False
        self.may_think = token_id == self.vocabulary.newline_id
        self.must_think = self.may_think and self.state.validate_tokens([token_id]) == 0
        return self.must_think

    def follow(self, token_id: int) -> None:
        """Keep track of a text that runs free until its tag comes."""
        if self.free_text is None:
            self.free_text, self.num_spelled = self.vocabulary.values.get(token_id), 0
        elif token_id == self.free_text.closing_id:
            self.free_text, self.in_thought = None, False
        else:
            self.num_spelled = self.free_text.follow(self.num_spelled, token_id)

    def require_state(self, what: str) -> None:
        if self.state.is_error():
            self.grammar.has_failed = True
            problem = first_line(self.state.get_error())
            raise BadInputError(f"the grammar failed on {what}: {problem}")

    @property
    def thinks(self) -> bool:
        return self.in_thought or self.must_think

    @property
    def is_complete(self) -> bool:
        """Whether the text so far is a whole one."""
        return not self.thinks and self.state.is_accepting()

    @property
    def is_finished(self) -> bool:
        """Whether nothing but an end of text can come."""
        return not self.thinks and self.state.is_stopped()
