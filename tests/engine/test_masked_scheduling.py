"""The scheduler over the ledger with requests that wait for masks: which rows a step has."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.core.errors import EngineError, Status
from glm_engine.core.requests import Request, Sampling
from tests.engine.ledger import Ledger, ends_of, expected_tokens, next_token, outputs_of
from tests.engine.masking import mask_of
from tests.engine.test_scheduler import POISON, PROPERTY_SETTINGS, VOCAB, Story, prompt_of
from tests.shapes import generator

FULL = mask_of(range(VOCAB), VOCAB)
SAMPLINGS = [Sampling(), Sampling(temperature=0.5, seed=3), Sampling(repetition_penalty=1.2)]
MOST_STEPS = 2000


def allowed_at(request_id: int, index: int) -> list[int] | None:
    """What a request may give at an index: a few tokens, often one, at times any (None)."""
    random = generator("masked scheduling", request_id, max(index, 0))
    if random.integers(4) == 0:
        return None
    return random.choice(POISON, int(random.integers(1, 6)), replace=False).tolist()


def words_at(request_id: int, index: int) -> np.ndarray | None:
    allowed = allowed_at(request_id, index)
    return None if allowed is None else mask_of(allowed, VOCAB)


def first_allowed(token: int, allowed: list[int] | None) -> int:
    """What the ledger takes: the allowed token that comes first from `token` on, in a circle."""
    if allowed is None:
        return token
    return min(allowed, key=lambda other: (other - token) % POISON)


def expected_under_masks(request: Request, request_id: int) -> list[int]:
    tokens, length = list(request.prompt), len(request.prompt)
    for index in range(request.max_tokens):
        token = next_token(tokens, length, request, VOCAB)
        allowed = list(range(POISON)) if index == 0 else allowed_at(request_id, index)
        tokens.append(first_allowed(token, allowed))
    return tokens[length:]


def masked(length: int, max_tokens: int, **changes) -> Request:
    prompt = prompt_of(length, "masked")
    return Request(prompt=prompt, max_tokens=max_tokens, ignore_eos=True, mask=FULL, **changes)


def steps_of(ledger: Ledger) -> int:
    return ledger.info()["num_steps"]


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_no_step_is_made_while_all_wait(plans_ahead):
    with Ledger(plans_ahead=plans_ahead) as ledger:
        ids = [ledger.submit(masked(5 + i, 4)) for i in range(3)]
        for _ in range(4):
            ledger.iterate()
        assert steps_of(ledger) == 1
        ledger.set_masks([(ids[1], 1, FULL)])
        for _ in range(4):
            ledger.iterate()
        assert steps_of(ledger) == 2
        assert [len(tokens) for tokens in outputs_of(ledger.poll_all()).values()] == [1, 2, 1]


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_requests_whose_masks_come_together_stay_in_one_step(plans_ahead):
    count, max_tokens = 4, 6
    with Ledger(plans_ahead=plans_ahead) as ledger:
        ids = [ledger.submit(masked(5, max_tokens)) for _ in range(count)]
        for index in range(1, max_tokens):
            for _ in range(3):
                ledger.iterate()
            assert steps_of(ledger) == index
            ledger.set_masks([(request_id, index, FULL) for request_id in ids])
        assert set(ends_of(ledger.run())) == set(ids)
        assert steps_of(ledger) == max_tokens


def test_each_mask_that_can_be_given_is_given_whatever_the_others_are():
    with Ledger() as ledger:
        first, second = (ledger.submit(masked(5, 2)) for _ in range(2))
        for _ in range(3):
            ledger.iterate()
        gone, too_late = (987654, 1, FULL), (first, 5, FULL)
        with pytest.raises(EngineError, match=f"index is 5, .* request {first}") as caught:
            ledger.set_masks([gone, too_late, (second, 7, FULL), (first, 1, FULL)])
        assert caught.value.status == Status.GLM_INVALID_ARGUMENT
        with pytest.raises(EngineError, match="request 987654 is unknown or has ended") as caught:
            ledger.set_masks([gone, (second, 1, FULL)])
        assert caught.value.status == Status.GLM_NOT_FOUND
        assert {end.finish_reason for end in ends_of(ledger.run()).values()} == {"length"}


def test_one_mask_is_not_given_twice_in_one_call():
    with Ledger() as ledger:
        request_id = ledger.submit(masked(5, 3))
        for _ in range(3):
            ledger.iterate()
        with pytest.raises(EngineError, match=r"index is 1, but request .* output token 2 next"):
            ledger.set_masks([(request_id, 1, FULL), (request_id, 1, FULL)])


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_who_waits_takes_nothing_of_a_step(plans_ahead):
    with Ledger(max_step_tokens=2, max_logit_rows=2, plans_ahead=plans_ahead) as ledger:
        waiting = [ledger.submit(masked(1, 4)) for _ in range(2)]
        for _ in range(3):
            ledger.iterate()
        requests = [Request(prompt=prompt_of(7, i), max_tokens=5, ignore_eos=True) for i in (0, 1)]
        ids = [ledger.submit(request) for request in requests]
        for _ in range(40):
            ledger.iterate()
        events = ledger.poll_all()
        assert set(ends_of(events)) == set(ids)
        outputs = outputs_of(events)
        assert [outputs[i] for i in ids] == [expected_tokens(request) for request in requests]
        assert [len(outputs[i]) for i in waiting] == [1, 1]


def test_who_waits_gives_the_page_of_its_row_to_others():
    with Ledger(num_pages=4, page_size=4, prefix_cache=0) as ledger:
        waiting = ledger.submit(masked(4, 4))
        for _ in range(3):
            ledger.iterate()
        assert ledger.info()["owned_pages"] == 2
        hog = ledger.submit(Request(prompt=prompt_of(8), max_tokens=4, ignore_eos=True))
        ledger.iterate()
        assert ledger.info()["owned_pages"] == 1
        for _ in range(6):
            ledger.iterate()
        assert set(ends_of(ledger.poll_all())) == {hog}
        assert ledger.info()["num_preemptions"] == 0
        ledger.cancel(waiting)
        ledger.run()


@pytest.mark.parametrize("transfer", [0, 1])
def test_a_mask_outlives_a_plan_that_is_made_again(transfer):
    """Pages of the other request cannot be saved or restored; the mask given before holds.

    A third request has no masks, so that the two sit out.
    """
    with Ledger(prefix_cache=0) as ledger:
        subject, other = ledger.submit(masked(5, 3)), ledger.submit(masked(9, 3))
        ledger.submit(Request(prompt=prompt_of(4), max_tokens=9, ignore_eos=True))
        for _ in range(3):
            ledger.iterate()
        before = steps_of(ledger)
        ledger.fail_at(transfer=transfer)
        ledger.preempt(other)
        ledger.set_masks([(subject, 1, words_at(subject, 1))])
        ledger.iterate()
        assert steps_of(ledger) == before
        ledger.iterate()
        ledger.set_masks([(subject, 2, words_at(subject, 2))])
        events = ledger.run()
    ends = ends_of(events)
    assert f"transfer {transfer} was set to fail" in ends[other].message
    assert ends[subject].finish_reason == "length"
    assert outputs_of(events)[subject] == expected_under_masks(masked(5, 3), subject)


def feed(ledger: Ledger, outputs: dict[int, list[int]], live: set[int]) -> None:
    for request_id in sorted(live):
        index = len(outputs.get(request_id, ()))
        if index > 0:
            give(ledger, request_id, index)


def give(ledger: Ledger, request_id: int, index: int) -> bool:
    """Gives a mask; one that was given before is refused as such."""
    try:
        ledger.set_masks([(request_id, index, words_at(request_id, index))])
    except EngineError as error:
        if error.status in (Status.GLM_INVALID_ARGUMENT, Status.GLM_NOT_FOUND):
            return False
        raise
    return True


class MaskedStory(Story):
    """Random operations of which some submit masked requests and give masks, right and wrong."""

    def __init__(self, ledger: Ledger):
        super().__init__(ledger)
        self.events = []
        self.masked = set()

    def masked_submit(self, length, max_tokens, sampling):
        request = masked(length, max_tokens, sampling=SAMPLINGS[sampling])
        request_id = self.attempt(self.ledger.submit, request)
        if request_id is not None:
            self.requests[request_id] = request
            self.masked.add(request_id)

    def mask(self, request_id, shift):
        """Gives the mask of the next token, or `shift` further; only what is due is taken."""
        self.events += self.ledger.poll_all()
        index = len(outputs_of(self.events).get(request_id, ())) + shift
        was_given = give(self.ledger, request_id, index)
        assert not (was_given and (shift or request_id not in self.masked))

    def finish(self):
        for _ in range(MOST_STEPS):
            self.events += self.ledger.poll_all()
            live = self.masked - set(ends_of(self.events))
            if self.ledger.info()["live_requests"] == 0:
                return
            feed(self.ledger, outputs_of(self.events), live)
            self.ledger.iterate()
        raise AssertionError(f"requests are still live: {self.ledger.info()}")

    def expected(self, request_id: int) -> list[int]:
        request = self.requests[request_id]
        if request_id in self.masked:
            return expected_under_masks(request, request_id)
        return expected_tokens(request)

    def check(self):
        outputs, ends = outputs_of(self.events), ends_of(self.events)
        assert set(ends) == set(self.requests)
        for request_id in self.requests:
            expected, output = self.expected(request_id), outputs[request_id]
            if ends[request_id].finish_reason == "cancelled":
                assert request_id in self.cancelled
                assert output == expected[: len(output)]
            else:
                assert ends[request_id].finish_reason == "length"
                assert output == expected


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2)),
        st.tuples(
            st.just("masked_submit"), st.integers(1, 20), st.integers(1, 12), st.integers(0, 2)
        ),
        st.tuples(st.just("mask"), st.integers(1, 8), st.sampled_from([0, 0, 0, 1, -1])),
        st.tuples(st.just("iterate"), st.integers(1, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("preempt"), st.integers(0, 30)),
        st.tuples(st.just("resize"), st.integers(8, 20)),
    ),
    max_size=40,
)


@PROPERTY_SETTINGS
@given(
    operations=OPERATIONS,
    num_pages=st.sampled_from([8, 11, 20]),
    prefill_chunk=st.sampled_from([0, 3]),
    prefix_cache=st.integers(0, 1),
    plans_ahead=st.integers(0, 1),
    max_logit_rows=st.sampled_from([1, 4]),
    decode_ns=st.sampled_from([0, 10**9]),
    step_budget_ms=st.sampled_from([0, 5]),
)
def test_tokens_hold_under_random_operations_and_masks(operations, num_pages, **chosen):
    costs = {"step_us": 1000, "row_us": 500}
    with Ledger(num_pages=20, max_batch=4, max_step_tokens=9, **costs, **chosen) as ledger:
        ledger.resize_pool(num_pages)
        story = MaskedStory(ledger)
        for name, *arguments in operations:
            getattr(story, name)(*arguments)
            assert ledger.is_consistent()
        ledger.resize_pool(20)
        story.finish()
        story.check()
        assert ledger.info()["owned_pages"] == 0


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_the_thread_wakes_for_masks_of_many_callers(plans_ahead):
    count, max_tokens = 8, 30
    requests = [replace(masked(3 + i, max_tokens), sampling=SAMPLINGS[i % 3]) for i in range(count)]
    with Ledger(is_manual=0, plans_ahead=plans_ahead) as ledger:
        ids = [ledger.submit(request) for request in requests]
        events, ended = [], threading.Event()
        outputs = {request_id: [] for request_id in ids}
        givers = [
            threading.Thread(target=keep_giving, args=(ledger, request_id, outputs, ended))
            for request_id in ids
        ]
        for giver in givers:
            giver.start()
        while len(ends_of(events)) < count:
            assert ledger.wait(60)
            new = ledger.poll()
            events += new
            for event in new:
                if event.kind == "token":
                    outputs[event.request_id].append(event.token_id)
        ended.set()
        for giver in givers:
            giver.join()
    for request_id, request in zip(ids, requests, strict=True):
        assert outputs[request_id] == expected_under_masks(request, request_id)


def keep_giving(ledger: Ledger, request_id: int, outputs: dict, ended: threading.Event) -> None:
    """Gives each mask as soon as its index is due."""
    index = 1
    while not ended.wait(0.0005):
        if len(outputs[request_id]) >= index and give(ledger, request_id, index):
            index += 1
