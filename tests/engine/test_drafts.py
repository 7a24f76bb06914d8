"""Random schedules over the ledger: with drafts, right or wrong, each request gets its own tokens.

`GLM_TEST_SCHEDULES` sets how many schedules are drawn; the model in Python is `expected_tokens`,
which knows neither drafts nor steps.
"""

import os
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from glm_engine.core.errors import EngineError, Status
from glm_engine.core.requests import Request, Sampling
from tests.engine.ledger import Ledger, ends_of, expected_tokens, next_token, outputs_of
from tests.engine.lookup_model import LookupModel
from tests.engine.masking import mask_of
from tests.engine.test_masked_scheduling import first_allowed

VOCAB = 97
MAX_SEQ = 64
NUM_SCHEDULES = int(os.environ.get("GLM_TEST_SCHEDULES", "300"))
ACCURACIES = [0.0, 0.3, 0.7, 1.0]
OFF, LOOKUP, AUTO, MTP = 0, 1, 2, 3
REFUSALS = (Status.GLM_OUT_OF_MEMORY, Status.GLM_NOT_FOUND)

pytestmark = pytest.mark.timeout(1800)


def damaged(tokens: list[int], accuracy: float, draw: random.Random) -> list[int]:
    """Tokens of which each is kept with a probability of `accuracy`."""
    return [
        token if draw.random() < accuracy else (token + draw.randrange(1, VOCAB - 1)) % (VOCAB - 1)
        for token in tokens
    ]


def random_sampling(draw: random.Random) -> Sampling:
    return Sampling(
        temperature=draw.choice([0.0, 0.9]),
        seed=draw.randrange(2**40),
        frequency_penalty=draw.choice([0.0, 0.0, 0.5]),
        num_logprobs=draw.choice([-1, -1, 2]),
    )


def allowed_after(outputs: list[int]) -> list[int] | None:
    """What a masked request may give behind these tokens: a few, or any (None)."""
    draw = random.Random(str(outputs))
    if draw.random() < 0.3:
        return None
    return draw.sample(range(VOCAB - 1), draw.randrange(1, 6))


def mask_after(outputs: list[int]):
    allowed = allowed_after(outputs)
    return None if allowed is None else mask_of(allowed, VOCAB)


def expected_under_masks(request: Request, one_attention: bool) -> list[int]:
    tokens, length = list(request.prompt), len(request.prompt)
    for _ in range(request.max_tokens):
        token = next_token(tokens, length, request, VOCAB, one_attention)
        tokens.append(first_allowed(token, allowed_after(tokens[length:])))
    return tokens[length:]


def with_drafts(
    request: Request, tokens: list[int], draw: random.Random, kinds: Sequence[str]
) -> Request:
    """The request with drafts, a prediction or neither, each token right by chance."""
    guess = damaged(tokens, draw.choice(ACCURACIES), draw)
    drafts = guess[: draw.randrange(len(guess) + 1)]
    kind = draw.choice(kinds)
    if kind == "prediction":
        skipped = draw.randrange(len(drafts) + 1) if draw.random() < 0.2 else 0
        return replace(request, prediction_tokens=drafts[skipped:])
    return replace(request, draft_tokens=drafts) if kind == "drafts" else request


def random_request(
    draw: random.Random, one_attention: bool, kinds: Sequence[str]
) -> tuple[Request, list[int]]:
    """A request and what it must answer."""
    length = draw.randrange(1, 24)
    prompt = [draw.randrange(5) if draw.random() < 0.5 else 3 for _ in range(length)]
    biases = draw.choice([{}, {}, {7: 3.0, 11: -2.0}])
    max_tokens = draw.randrange(0, 16)
    request = Request(
        prompt,
        max_tokens=max_tokens,
        priority=draw.randrange(3),
        sampling=random_sampling(draw),
        biases=biases,
        ignore_eos=True,
    )
    if draw.random() < 0.3:
        first = mask_of(allowed_after([]) or range(VOCAB - 1), VOCAB)
        request = replace(request, mask=first)
        tokens = expected_under_masks(request, one_attention)
    else:
        tokens = expected_tokens(request, one_attention=one_attention)
    if tokens and draw.random() < 0.3:
        stop = draw.choice(tokens)
        tokens = tokens[: tokens.index(stop) + 1]
        request = replace(request, stop_tokens=[stop])
    return with_drafts(request, tokens, draw, kinds), tokens


def check_counts(info: dict, ends) -> None:
    """The counters of drafts against each other and against the events that end requests."""
    assert info["num_drafts"] <= info["num_draft_tokens"]
    assert info["num_accepted_tokens"] <= info["num_draft_tokens"]
    assert sum(info["num_accepted_at"]) == info["num_accepted_tokens"]
    assert list(info["num_accepted_at"]) == sorted(info["num_accepted_at"], reverse=True)
    for name in ("num_draft_tokens", "num_accepted_tokens"):
        assert sum(getattr(end, name) for end in ends) == info[name]


def model_of(request: Request) -> LookupModel:
    num_tokens = len(request.prediction_tokens) + len(request.prompt) + request.max_tokens
    return LookupModel(num_tokens, request.prediction_tokens, request.prompt)


class Schedule:
    """One ledger, random orders, and what each request must answer."""

    def __init__(self, seed: int, speculate: int, has_layer: bool):
        self.draw = random.Random(seed)
        draw = self.draw
        self.one_attention = draw.random() < 0.5
        self.kinds = ("prediction", "prediction", "drafts", "") if speculate else ("drafts",)
        max_batch = draw.randrange(1, 6)
        most = 1 if speculate == MTP else draw.choice([1, 3, 7])
        self.most_drafts = most
        self.ledger = Ledger(
            max_draft_tokens=most,
            speculate=speculate,
            row_us=draw.choice([0, 100, 1000]) if speculate else 0,
            step_us=1000,
            acceptance_length=draw.choice([0, 0, 1]) if speculate else 0,
            max_seq=MAX_SEQ,
            max_batch=max_batch,
            num_pages=draw.choice([16, 20, 64]),
            page_size=draw.choice([1, 3, 4]) if draw.random() < 0.3 else 4,
            max_step_tokens=draw.choice([max_batch, 9, 40]) if max_batch <= 9 else 40,
            max_logit_rows=draw.choice([max_batch, max_batch * (most + 1)]),
            prefill_chunk=draw.choice([0, 3]),
            prefix_cache=draw.randrange(2),
            plans_ahead=draw.randrange(2),
            caches_answers=int(self.one_attention),
            max_draft_rows=max_batch if has_layer else 0,
            layer_percent=draw.choice([0, 30, 70, 100]),
        )
        self.has_layer = has_layer
        self.expected, self.masked, self.outputs = {}, {}, {}
        self.num_given, self.events, self.cancelled = {}, [], set()
        self.lookups, self.looks_up = {}, speculate in (LOOKUP, AUTO)

    def attempt(self, operation, *arguments):
        try:
            return operation(*arguments)
        except EngineError as error:
            if error.status in REFUSALS or "too small for request" in str(error):
                return None
            raise

    def submit(self) -> None:
        request, tokens = random_request(self.draw, self.one_attention, self.kinds)
        request_id = self.attempt(self.ledger.submit, request)
        if request_id is not None:
            self.expected[request_id] = (tokens, "stop_token" if request.stop_tokens else "length")
            self.outputs[request_id] = []
            if request.mask is not None:
                self.masked[request_id] = list(request.draft_tokens)
                self.num_given[request_id] = 1
                if self.looks_up and not request.draft_tokens:
                    self.lookups[request_id] = request.max_tokens, model_of(request)

    def disturb(self) -> None:
        if not self.expected:
            return
        request_id = self.draw.choice(list(self.expected))
        if self.draw.random() < 0.5:
            self.attempt(self.ledger.cancel, request_id)
            self.cancelled.add(request_id)
        else:
            self.attempt(self.ledger.preempt, request_id)

    def iterate(self) -> None:
        self.ledger.iterate()
        for event in self.ledger.poll_all():
            self.events.append(event)
            if event.kind == "token":
                self.take_token(event.request_id, event.token_id)
                self.check_offer(event)
            elif event.ends_request:
                self.masked.pop(event.request_id, None)
        for request_id in self.masked:
            if self.draw.random() < 0.8:
                self.give_masks(request_id)

    def take_token(self, request_id: int, token: int) -> None:
        outputs = self.outputs[request_id]
        outputs.append(token)
        if request_id in self.masked:
            drafts, index = self.masked[request_id], len(outputs) - 1
            if drafts[index : index + 1] != [token]:
                self.num_given[request_id] = min(self.num_given[request_id], len(outputs))

    def check_offer(self, event) -> None:
        """A token of a masked request comes with what lookup expects behind it."""
        expected = []
        if event.request_id in self.lookups:
            max_tokens, model = self.lookups[event.request_id]
            model.push(event.token_id)
            expected = model.continuation(min(self.most_drafts, max_tokens - event.index - 1))
        if expected or not self.has_layer:
            assert event.drafts == expected
        elif event.drafts:
            assert len(event.drafts) == 1
            self.masked[event.request_id] = self.outputs[event.request_id] + event.drafts

    def give_masks(self, request_id: int) -> None:
        """The mask of the next token, if it was not given, and some behind drafts."""
        known, drafts = self.outputs[request_id], self.masked[request_id]
        for num_drafts in range(self.draw.randrange(self.most_drafts + 1) + 1):
            index = len(known) + num_drafts
            if index > len(drafts) and num_drafts > 0:
                return
            behind = known + drafts[len(known) : index]
            draft = behind[-1] if num_drafts else -1
            mask = (request_id, index, mask_after(behind), num_drafts, draft)
            if index >= self.num_given[request_id]:
                self.attempt(self.ledger.set_masks, [mask])
                self.num_given[request_id] = index + 1

    def run(self) -> dict:
        for _ in range(self.draw.randrange(1, 20)):
            self.draw.choice([self.submit, self.submit, self.disturb, self.iterate])()
            assert self.ledger.is_consistent()
        for _ in range(2000):
            if self.ledger.info()["live_requests"] == 0:
                return self.check(self.events + self.ledger.poll_all())
            self.iterate()
        raise AssertionError(f"requests are still live: {self.ledger.info()}")

    def check(self, events) -> dict:
        outputs, ends = outputs_of(events), ends_of(events)
        assert set(ends) == set(self.expected)
        for request_id, (tokens, reason) in self.expected.items():
            if ends[request_id].finish_reason == "cancelled":
                assert request_id in self.cancelled
                assert outputs[request_id] == tokens[: len(outputs[request_id])]
            else:
                assert (outputs[request_id], ends[request_id].finish_reason) == (tokens, reason)
        info = self.ledger.info()
        assert info["owned_pages"] == 0
        check_counts(info, ends.values())
        return info


@pytest.mark.parametrize(
    ("speculate", "has_layer"),
    [(OFF, False), (LOOKUP, False), (AUTO, False), (AUTO, True), (MTP, True)],
)
def test_random_schedules_with_drafts(speculate, has_layer, record_property):
    base = random.randrange(2**32)
    record_property("seed", base)
    for seed in range(base, base + NUM_SCHEDULES):
        schedule = Schedule(seed, speculate, has_layer)
        with schedule.ledger:
            try:
                schedule.run()
            except AssertionError as error:
                raise AssertionError(f"schedule {seed}") from error


@pytest.mark.parametrize("plans_ahead", [0, 1])
@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("num_tokens", [1, 2, 17])
def test_right_drafts_save_their_steps(num_tokens, most, plans_ahead):
    request = Request([1, 2, 3], max_tokens=num_tokens, ignore_eos=True)
    drafts = expected_tokens(request)
    options = {"max_draft_tokens": most, "max_logit_rows": 64, "plans_ahead": plans_ahead}
    with Ledger(**options) as ledger:
        request_id = ledger.submit(replace(request, draft_tokens=drafts))
        assert outputs_of(ledger.run())[request_id] == drafts
        info = ledger.info()
    assert info["num_steps"] <= 2 + (num_tokens - 1) // (most + 1)
    assert info["num_decode_tokens"] == num_tokens - 1


def test_a_step_is_planned_ahead_of_drafts_in_flight():
    request = Request([1, 2, 3], max_tokens=40, ignore_eos=True)
    drafts = expected_tokens(request)
    with Ledger(max_draft_tokens=3, max_logit_rows=64, plans_ahead=1) as ledger:
        request_id = ledger.submit(replace(request, draft_tokens=drafts))
        for num_steps in range(1, 6):
            ledger.iterate()
            calls = ledger.calls()
            assert (calls["launch"], calls["land"]) == (num_steps, num_steps - 1)
        assert outputs_of(ledger.run())[request_id] == drafts


@pytest.mark.parametrize("plans_ahead", [0, 1])
@pytest.mark.parametrize("most", [1, 3, 7])
def test_a_right_prediction_saves_its_steps(most, plans_ahead):
    request = Request([1, 2, 3], max_tokens=40, ignore_eos=True)
    tokens = expected_tokens(request)
    options = {"max_draft_tokens": most, "max_logit_rows": 64, "plans_ahead": plans_ahead}
    with Ledger(speculate=1, **options) as ledger:
        request_id = ledger.submit(replace(request, prediction_tokens=tokens))
        events = ledger.run()
        info = ledger.info()
    assert outputs_of(events)[request_id] == tokens
    assert info["num_steps"] <= 3 + 39 // (most + 1)
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] > 0
    assert ends_of(events)[request_id].num_accepted_tokens == info["num_accepted_tokens"]


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_a_stop_token_that_was_drafted_counts_as_accepted(plans_ahead):
    request = Request([1, 2, 3], max_tokens=9, ignore_eos=True)
    tokens = expected_tokens(request)
    stopped = replace(request, stop_tokens=[tokens[2]], prediction_tokens=tokens)
    options = {"max_draft_tokens": 7, "max_logit_rows": 64, "plans_ahead": plans_ahead}
    with Ledger(speculate=1, **options) as ledger:
        request_id = ledger.submit(stopped)
        events = ledger.run()
    end = ends_of(events)[request_id]
    assert outputs_of(events)[request_id] == tokens[:3]
    assert (end.num_draft_tokens, end.num_accepted_tokens) == (7, 2)


def test_nothing_is_drafted_without_speculation():
    request = Request([1, 2, 3], max_tokens=9, ignore_eos=True)
    tokens = expected_tokens(request)
    with Ledger(max_draft_tokens=7, max_logit_rows=64) as ledger:
        ledger.submit(replace(request, prediction_tokens=tokens))
        ledger.run()
        assert ledger.info()["num_draft_tokens"] == 0


def test_a_forced_acceptance_fills_each_step_with_drafts():
    request = Request([1, 2, 3], max_tokens=40, ignore_eos=True)
    options = {"max_draft_tokens": 3, "max_logit_rows": 64}
    with Ledger(speculate=1, acceptance_length=2, **options) as ledger:
        request_id = ledger.submit(request)
        assert outputs_of(ledger.run())[request_id] == expected_tokens(request)
        info = ledger.info()
    assert info["num_draft_tokens"] >= 3 * info["num_drafts"] - 3
    assert info["num_drafts"] >= info["num_steps"] - 2


def test_wrong_drafts_cost_no_step():
    request = Request([1, 2, 3], max_tokens=9, ignore_eos=True)
    wrong = [(token + 1) % (VOCAB - 1) for token in expected_tokens(request)]
    with Ledger(max_draft_tokens=3, max_logit_rows=64) as ledger:
        request_id = ledger.submit(replace(request, draft_tokens=wrong))
        assert outputs_of(ledger.run())[request_id] == expected_tokens(request)
        assert ledger.info()["num_steps"] == 9


@pytest.mark.parametrize("name", ["draft_tokens", "prediction_tokens"])
@pytest.mark.parametrize("drafts", [[-1], [VOCAB], [3, VOCAB]])
def test_drafts_outside_the_vocabulary_are_refused(drafts, name):
    place = len(drafts) - 1
    expected = rf"{name}\[{place}\] is token {drafts[-1]}"
    with Ledger(max_draft_tokens=3) as ledger, pytest.raises(EngineError, match=expected):
        ledger.submit(Request([1], **{name: drafts}))


def test_a_prediction_may_be_longer_than_the_context():
    request = Request([1, 2, 3], max_tokens=MAX_SEQ, ignore_eos=True)
    tokens = expected_tokens(request)
    guess = [*tokens, *range(90)] * 9
    with Ledger(speculate=1, max_draft_tokens=3, max_logit_rows=64) as ledger:
        request_id = ledger.submit(replace(request, prediction_tokens=guess))
        assert outputs_of(ledger.run())[request_id] == tokens
        info = ledger.info()
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] > 0
