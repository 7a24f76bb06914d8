"""Answers that follow a grammar: masked token by token, off the event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from glm_engine.dialogue import Opening
from glm_engine.errors import EngineError, Status

NUM_THREADS = 2
LEAST_TOGETHER = 8


class Guide:
    """The way of one choice through its grammar."""

    def __init__(self, matcher):
        self.matcher = matcher
        self.num_tokens = 0

    def advance(self, token_id):
        """Take a token; return the index of the next one and its mask."""
        self.num_tokens += 1
        self.matcher.accept(token_id)
        return self.num_tokens, self.matcher.mask()


class Wave:
    """Choices whose tokens came together: the engine gets their next masks in one call.

    Masks given one by one would split a batch that goes in step.
    """

    def __init__(self, engine, tokens, refuse):
        turns = list(tokens.items())
        num_parts = min(NUM_THREADS, -(-len(turns) // LEAST_TOGETHER))
        self.engine = engine
        self.refuse = refuse
        self.parts = [turns[first::num_parts] for first in range(num_parts)]
        self.num_left = num_parts
        self.masks = {}
        self.lock = threading.Lock()

    def advance(self, part):
        """Compute the masks of a part; whoever is last gives all of them."""
        masks = {}
        for choice, token_id in part:
            try:
                masks[choice] = (choice.request_id, *choice.guide.advance(token_id))
            except Exception as error:
                self.refuse(choice, error)
        with self.lock:
            self.masks |= masks
            self.num_left -= 1
            is_last = self.num_left == 0
        if is_last:
            self.give()

    def give(self):
        try:
            self.engine.set_masks(list(self.masks.values()))
        except Exception as error:
            if not has_ended(error):
                for choice in self.masks:
                    self.refuse(choice, error)


def has_ended(error):
    """Say whether all that was wrong is that requests have ended meanwhile."""
    return isinstance(error, EngineError) and error.status == Status.GLM_NOT_FOUND


class Guides:
    """The threads in which masks are computed."""

    def __init__(self, engine):
        self.engine = engine
        self.pool = ThreadPoolExecutor(NUM_THREADS, "glm-masks")

    def close(self):
        self.pool.shutdown(cancel_futures=True)

    async def guide(self, choices, grammar, opening=Opening.ANSWER):
        """Let choices follow a grammar, after the thought that they may open with."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self.pool, guide_choices, choices, grammar, opening)

    def advance(self, tokens, refuse):
        """Have the masks computed that follow the tokens, by choice, which came together.

        refuse(choice, error) is called on the loop.
        """
        loop = asyncio.get_running_loop()
        wave = Wave(self.engine, tokens, partial(loop.call_soon_threadsafe, refuse))
        for part in wave.parts:
            self.pool.submit(wave.advance, part)


def guide_choices(choices, grammar, opening):
    """Give each choice its way through a grammar, and its request the first mask."""
    first_mask = None
    for choice in choices:
        choice.guide = Guide(grammar.start(opening))
        if first_mask is None:
            first_mask = choice.guide.matcher.mask()
        choice.request = replace(choice.request, mask=first_mask)
