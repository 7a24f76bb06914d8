"""Random schedules over the ledger of masked requests whose drafts come with their masks.

The caller sees tokens late, guesses the next ones, and gives masks for its guesses.
"""

import os
import random

import pytest

from glm_engine.core.errors import EngineError
from tests.engine.ledger import Ledger, ends_of, outputs_of
from tests.engine.test_drafts import (
    MTP,
    REFUSALS,
    VOCAB,
    mask_after,
    random_request,
)

NUM_SCHEDULES = int(os.environ.get("GLM_TEST_SCHEDULES", "300"))

pytestmark = pytest.mark.timeout(1800)


class Caller:
    """Gives the masks of one request: `seen` are the tokens that it knows, `drafts` its guesses."""

    def __init__(self, request_id: int, tokens: list[int], accuracy: float, draw: random.Random):
        self.request_id, self.tokens = request_id, tokens
        self.accuracy, self.draw = accuracy, draw
        self.seen: list[int] = []
        self.drafts: list[int] = []
        self.unseen: list[int] = []
        self.has_given = True

    def look(self) -> None:
        for token in self.unseen:
            self.seen.append(token)
            if not self.drafts or self.drafts.pop(0) != token:
                self.drafts, self.has_given = [], False
        self.unseen = []

    def guess(self) -> int:
        place = len(self.seen) + len(self.drafts)
        if self.draw.random() < self.accuracy and place < len(self.tokens):
            return self.tokens[place]
        return self.draw.randrange(VOCAB - 1)

    def masks(self, most: int) -> list[tuple]:
        """The mask of the next token, if it was not given, and some behind guesses."""
        found = []
        if not self.has_given:
            found.append((self.request_id, len(self.seen), mask_after(self.seen)))
            self.has_given = True
        while len(self.drafts) < self.draw.randrange(2 * most + 1):
            self.drafts.append(self.guess())
            behind, count = self.seen + self.drafts, len(self.drafts)
            mask = mask_after(behind)
            found.append((self.request_id, len(behind), mask, count, self.drafts[-1]))
        return found


class Schedule:
    """One ledger with masked requests among others, and what each must answer."""

    def __init__(self, seed: int, has_layer: bool):
        self.draw = draw = random.Random(seed)
        self.one_attention = draw.random() < 0.5
        max_batch, self.most = draw.randrange(1, 6), 1 if has_layer else draw.choice([1, 3, 7])
        layer = {"speculate": MTP, "max_draft_rows": max_batch, "layer_percent": 70}
        self.ledger = Ledger(
            **(layer if has_layer else {}),
            max_draft_tokens=self.most,
            max_batch=max_batch,
            num_pages=draw.choice([16, 20, 64]),
            max_step_tokens=40,
            max_logit_rows=draw.choice([max_batch, max_batch * (self.most + 1)]),
            prefix_cache=draw.randrange(2),
            plans_ahead=draw.randrange(2),
            caches_answers=int(self.one_attention),
        )
        self.expected, self.callers, self.events = {}, {}, []

    def submit(self) -> None:
        request, tokens = random_request(self.draw, self.one_attention, ("",))
        if request.mask is None and self.draw.random() < 0.7:
            return
        try:
            request_id = self.ledger.submit(request)
        except EngineError as error:
            if error.status in REFUSALS or "too small for request" in str(error):
                return
            raise
        self.expected[request_id] = tokens
        if request.mask is not None:
            accuracy = self.draw.choice([0.0, 0.5, 0.9, 1.0])
            self.callers[request_id] = Caller(request_id, tokens, accuracy, self.draw)

    def iterate(self) -> None:
        self.ledger.iterate()
        for event in self.ledger.poll_all():
            self.events.append(event)
            if event.ends_request:
                self.callers.pop(event.request_id, None)
            elif event.request_id in self.callers:
                self.callers[event.request_id].unseen.append(event.token_id)
        for caller in list(self.callers.values()):
            if self.draw.random() < 0.7:
                caller.look()
            if self.draw.random() < 0.7 and (masks := caller.masks(self.most)):
                self.ledger.set_masks(masks)

    def preempt(self) -> None:
        live = set(self.expected) - set(ends_of(self.events))
        if live:
            self.ledger.preempt(self.draw.choice(sorted(live)))

    def run(self) -> int:
        for _ in range(self.draw.randrange(1, 30)):
            self.draw.choice([self.submit, self.iterate, self.iterate, self.preempt])()
            assert self.ledger.is_consistent()
        for _ in range(2000):
            if self.ledger.info()["live_requests"] == 0:
                break
            self.iterate()
        self.events += self.ledger.poll_all()
        outputs = outputs_of(self.events)
        assert {one: outputs.get(one, []) for one in self.expected} == self.expected
        info = self.ledger.info()
        assert info["owned_pages"] == 0
        return info["num_accepted_tokens"]


@pytest.mark.parametrize("has_layer", [False, True])
def test_random_schedules_of_drafts_behind_masks(has_layer, record_property):
    """The prediction layer drafts other tokens than the caller guesses."""
    base = random.randrange(2**32)
    record_property("seed", base)
    num_accepted = 0
    for seed in range(base, base + NUM_SCHEDULES):
        schedule = Schedule(seed, has_layer)
        with schedule.ledger:
            try:
                num_accepted += schedule.run()
            except (AssertionError, EngineError) as error:
                raise AssertionError(f"schedule {seed}") from error
    assert num_accepted > NUM_SCHEDULES
