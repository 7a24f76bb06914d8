"""Answers that follow a grammar: masked token by token, off the event loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVarTuple

from glm_engine.core.engine import Engine
from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.text.dialogue import Opening
from glm_engine.text.grammar import Grammar, Matcher
from glm_engine.text.grammar.free_text import has
from glm_engine.text.grammar.matcher import Place

if TYPE_CHECKING:
    from glm_engine.server.choices import Choice

NUM_THREADS = 2
LEAST_TOGETHER = 8
DRAFT_SECONDS = 0.001


@dataclass
class NewTokens:
    """Tokens of one choice, in order, and those that the engine expects behind the last."""

    tokens: list[int] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)

    def add(self, tokens: list[int], expected: list[int]) -> None:
        self.tokens += tokens
        self.expected = expected


Mask = Sequence[Any]
Arguments = TypeVarTuple("Arguments")
Arrivals = dict["Choice", NewTokens]
Refuse = Callable[["Choice", Exception], object]


@dataclass(eq=False)
class Guide:
    """The way of one choice through its grammar, and ahead of it along draft tokens.

    most_drafts: how many drafts the engine computes at once; it takes masks for twice as many.
    drafts: those that the matcher has taken, each with the place before it; their masks are given.
    mask: that of the token after the last draft, None where no draft may follow.
    """

    matcher: Matcher
    most_drafts: int = 0
    tokens: list[int] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    drafts: deque[tuple[int, Place]] = field(default_factory=deque)
    mask: Any = None

    def take(self, new_tokens: NewTokens) -> list[Mask]:
        """Take what came; return the mask of the next token unless it was given already."""
        masks = []
        for token_id in new_tokens.tokens:
            masks = self.advance(token_id)
        self.expected = new_tokens.expected
        return masks

    def advance(self, token_id: int) -> list[Mask]:
        self.tokens.append(token_id)
        if self.drafts:
            draft, place = self.drafts.popleft()
            if draft == token_id:
                return []
            self.matcher.rollback(place)
            self.drafts.clear()
        self.matcher.accept(token_id)
        self.mask = self.matcher.mask()
        return [(len(self.tokens), self.mask)]

    def draft(self) -> list[Mask]:
        """Go on by one draft token; return the mask behind it, where there is one."""
        token_id = self.next_draft()
        if token_id is None:
            return []
        place = self.matcher.place()
        try:
            self.matcher.accept(token_id)
            self.mask = self.matcher.mask()
        except BadInputError:
            self.matcher = self.matcher.after([*self.tokens, *self.drafted()])
            self.mask = None
            return []
        self.drafts.append((token_id, place))
        count = len(self.drafts)
        return [(len(self.tokens) + count, self.mask, count, token_id)]

    def next_draft(self) -> int | None:
        """Return the one token that can come, or else the one that the engine expects."""
        if self.mask is None or len(self.drafts) >= 2 * self.most_drafts:
            return None
        found, count = self.matcher.forced, len(self.drafts)
        if found is None and self.expected[count:] and self.drafted() == self.expected[:count]:
            found = self.expected[count] if has(self.mask, self.expected[count]) else None
        return found if found is not None and self.matcher.can_take_back(found) else None

    def drafted(self) -> list[int]:
        return [token_id for token_id, _ in self.drafts]


def guide_of(choice: "Choice") -> Guide:
    assert choice.guide, "only choices with a guide have masks"
    return choice.guide


class MaskBatch:
    """Choices whose tokens came together: the engine gets their next masks in one call.

    Masks given one by one would split a batch that goes in step. Masks behind drafts are computed
    while there is time, a draft of each choice in turn.
    """

    def __init__(
        self,
        engine: Engine,
        new_tokens: Arrivals,
        refuse: Refuse,
        has_given: Callable[["MaskBatch"], None] = lambda _batch: None,
    ) -> None:
        turns = list(new_tokens.items())
        num_parts = min(NUM_THREADS, -(-len(turns) // LEAST_TOGETHER))
        self.engine = engine
        self.refuse = refuse
        self.has_given = has_given
        self.choices = set(new_tokens)
        self.parts = [turns[first::num_parts] for first in range(num_parts)]
        self.num_left = num_parts
        self.masks: dict[Choice, list[Mask]] = {}
        self.lock = threading.Lock()

    def advance(self, part: list[tuple["Choice", NewTokens]]) -> None:
        """Compute the masks of a part; whoever is last gives all of them."""
        until = time.monotonic() + DRAFT_SECONDS
        masks: dict[Choice, list[Mask]] = {}
        for choice, new_tokens in part:
            self.extend(masks, choice, guide_of(choice).take, new_tokens)
        going_on = list(masks)
        while going_on and time.monotonic() < until:
            going_on = [one for one in going_on if self.extend(masks, one, guide_of(one).draft)]
        with self.lock:
            self.masks |= masks
            self.num_left -= 1
            is_last = self.num_left == 0
        if is_last:
            self.give()
            self.has_given(self)

    def extend(
        self,
        masks: "dict[Choice, list[Mask]]",
        choice: "Choice",
        step: Callable[[*Arguments], list[Mask]],
        *arguments: *Arguments,
    ) -> bool:
        """Add the masks of a step of a choice; say whether there were any."""
        try:
            found = step(*arguments)
        except Exception as error:
            masks.pop(choice, None)
            self.refuse(choice, error)
            return False
        masks.setdefault(choice, []).extend((choice.request_id, *mask) for mask in found)
        return bool(found)

    def give(self) -> None:
        masks: list[Any] = [mask for found in self.masks.values() for mask in found]
        if not masks:
            return
        try:
            self.engine.set_masks(masks)
        except Exception as error:
            if not has_ended(error):
                for choice in self.masks:
                    self.refuse(choice, error)


def has_ended(error: Exception) -> bool:
    """Say whether all that was wrong is that requests have ended meanwhile."""
    return isinstance(error, EngineError) and error.status == Status.GLM_NOT_FOUND


class Guides:
    """The threads in which masks are computed; the tokens of one choice are taken in order.

    busy: choices with masks under way. coming: what came of them meanwhile.
    """

    def __init__(self, engine: Engine, most_drafts: int = 0) -> None:
        self.engine = engine
        self.most_drafts = most_drafts
        self.pool = ThreadPoolExecutor(NUM_THREADS, "glm-masks")
        self.busy: set[Choice] = set()
        self.coming: dict[Choice, NewTokens] = {}
        self.lock = threading.Lock()

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)

    async def guide(
        self, choices: "list[Choice]", grammar: Grammar, opening: Opening = Opening.ANSWER
    ) -> None:
        """Let choices follow a grammar, after the thought that they may open with."""
        loop = asyncio.get_running_loop()
        start = partial(guide_choices, choices, grammar, opening, self.most_drafts)
        await loop.run_in_executor(self.pool, start)

    def advance(self, new_tokens: Arrivals, refuse: Refuse) -> None:
        """Have the masks computed that follow what came of choices together.

        refuse(choice, error) is called on the loop.
        """
        on_loop = asyncio.get_running_loop().call_soon_threadsafe
        self.begin(new_tokens, lambda choice, error: on_loop(refuse, choice, error))

    def begin(self, new_tokens: Arrivals, refuse: Refuse) -> None:
        with self.lock:
            for choice in self.busy & new_tokens.keys():
                came = new_tokens.pop(choice)
                self.coming.setdefault(choice, NewTokens()).add(came.tokens, came.expected)
            self.busy |= new_tokens.keys()
        self.send(MaskBatch(self.engine, new_tokens, refuse, self.end))

    def send(self, batch: MaskBatch) -> None:
        for part in batch.parts:
            self.pool.submit(batch.advance, part)

    def end(self, batch: MaskBatch) -> None:
        """Begin a batch of the choices of which more came in the meantime."""
        with self.lock:
            new_tokens = {one: self.coming.pop(one) for one in batch.choices & self.coming.keys()}
            self.busy -= batch.choices - new_tokens.keys()
        self.send(MaskBatch(self.engine, new_tokens, batch.refuse, self.end))


def guide_choices(
    choices: "list[Choice]", grammar: Grammar, opening: Opening, most_drafts: int
) -> None:
    """Give each choice its way through a grammar, and its request the first mask."""
    first_mask: Any = None
    for choice in choices:
        choice.guide = Guide(grammar.start(opening), most_drafts)
        if first_mask is None:
            first_mask = choice.guide.matcher.mask()
        choice.request = replace(choice.request, mask=first_mask)
