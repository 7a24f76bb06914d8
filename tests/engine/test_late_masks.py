"""Masks that come after the forward pass of their rows: who waits for whom, and for how long."""

import threading
import time
from dataclasses import replace

import pytest

from glm_engine.core.engine import Request
from glm_engine.core.errors import Status
from tests.engine.failing_device import arm
from tests.engine.ledger import Ledger, ends_of, expected_tokens, outputs_of
from tests.engine.masking import VOCAB, asked, await_end, await_tokens, everything
from tests.engine.running import run_requests
from tests.engine.test_masked_scheduling import (
    FULL,
    SAMPLINGS,
    expected_under_masks,
    masked,
    steps_of,
    words_at,
)
from tests.engine.test_rank_failure import engine_of
from tests.engine.test_scheduler import prompt_of

COURSES = pytest.mark.parametrize("plans_ahead", [0, 1], ids=["one by one", "planned ahead"])
LONG_NS, SHORT_NS = 40 * 10**9, 4 * 10**8


def free(key: int = 0, max_tokens: int = 12) -> Request:
    return Request(prompt=prompt_of(6, key), max_tokens=max_tokens, ignore_eos=True)


def iterate(ledger: Ledger, times: int) -> None:
    for _ in range(times):
        ledger.iterate()


def token_counts(ledger: Ledger, events: list) -> dict[int, int]:
    events += ledger.poll_all()
    return {request_id: len(tokens) for request_id, tokens in outputs_of(events).items()}


@COURSES
def test_the_forward_pass_is_launched_before_its_masks_come(plans_ahead):
    with Ledger(plans_ahead=plans_ahead) as ledger:
        ids = [ledger.submit(masked(5 + i, 3)) for i in range(3)]
        iterate(ledger, 5)
        assert ledger.calls() == {"launch": 2, "sample": 1, "land": 1, "await_forward": 0}
        ledger.set_masks([(request_id, 1, words_at(request_id, 1)) for request_id in ids])
        iterate(ledger, 5)
        assert ledger.calls() == {"launch": 3, "sample": 2, "land": 2, "await_forward": 0}
        ledger.set_masks([(request_id, 2, words_at(request_id, 2)) for request_id in ids])
        outputs = outputs_of(ledger.run())
        assert ledger.info()["num_late_masks"] == ledger.info()["num_dropped_rows"] == 0
    for i, request_id in enumerate(ids):
        assert outputs[request_id] == expected_under_masks(masked(5 + i, 3), request_id)


@COURSES
def test_rows_without_masks_wait_for_those_that_come_in_time(plans_ahead):
    with Ledger(plans_ahead=plans_ahead, decode_ns=LONG_NS) as ledger:
        ids = [ledger.submit(masked(5, 9)), ledger.submit(free())]
        decode_once(ledger, ids[0])
        iterate(ledger, 6)
        events = []
        assert token_counts(ledger, events) == dict.fromkeys(ids, 2)
        ledger.set_masks([(ids[0], 2, FULL)])
        iterate(ledger, 6)
        assert token_counts(ledger, events) == dict.fromkeys(ids, 3)
        assert ledger.calls()["await_forward"] == 0


def decode_once(ledger: Ledger, masked_id: int) -> None:
    """The first decode step, from which the loop learns how long such a step takes."""
    while steps_of(ledger) < 2:
        ledger.iterate()
        if ledger.info()["num_steps"] == 1:
            ledger.set_masks([(masked_id, 1, FULL)])
            iterate(ledger, 3)


@COURSES
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "drawn", "penalised"])
def test_who_is_late_sits_out_and_stalls_nobody(sampling, plans_ahead):
    subject, other = masked(5, 4, sampling=sampling), replace(free(), sampling=sampling)
    with Ledger(plans_ahead=plans_ahead) as ledger:
        late, quick = ledger.submit(subject), ledger.submit(other)
        iterate(ledger, 30)
        events = []
        assert token_counts(ledger, events) == {late: 1, quick: other.max_tokens}
        info, calls = ledger.info(), ledger.calls()
        assert info["num_late_masks"] == info["num_dropped_rows"] == calls["await_forward"] == 1
        for index in range(1, subject.max_tokens):
            assert ledger.calls()["launch"] == ledger.calls()["land"]
            ledger.set_masks([(late, index, words_at(late, index))])
            iterate(ledger, 4)
        events += ledger.run()
        assert ledger.info()["num_late_masks"] == 1
    assert outputs_of(events)[late] == expected_under_masks(subject, late)
    assert outputs_of(events)[quick] == expected_tokens(other)


@COURSES
def test_a_step_waits_a_quarter_of_a_decode_step_and_forgives_who_is_in_time_again(plans_ahead):
    with Ledger(plans_ahead=plans_ahead, decode_ns=SHORT_NS) as ledger:
        ids = [ledger.submit(masked(5, 9)), ledger.submit(free(max_tokens=40))]
        decode_once(ledger, ids[0])
        launched = ledger.calls()["launch"]
        time.sleep(1.3 * SHORT_NS / 1e9)
        iterate(ledger, 6)
        assert ledger.info()["num_late_masks"] == 1
        assert ledger.calls()["launch"] > launched + 1
        ledger.set_masks([(ids[0], 2, FULL)])
        events = []
        while token_counts(ledger, events)[ids[0]] < 3:
            ledger.iterate()
        num_free = token_counts(ledger, events)[ids[1]]
        iterate(ledger, 4)
        assert token_counts(ledger, events)[ids[1]] > num_free, "it sits out, and stalls nobody"
        ledger.set_masks([(ids[0], 3, FULL)])
        while token_counts(ledger, events)[ids[0]] < 4:
            ledger.iterate()
        iterate(ledger, 8)
        assert ledger.calls()["launch"] == ledger.calls()["sample"] + 1, "its row is launched again"
        assert ledger.info()["num_late_masks"] == 1


@COURSES
def test_a_cancelled_request_is_not_waited_for(plans_ahead):
    with Ledger(plans_ahead=plans_ahead, decode_ns=LONG_NS) as ledger:
        ids = [ledger.submit(masked(5, 3)) for _ in range(2)]
        iterate(ledger, 4)
        ledger.cancel(ids[0])
        ledger.set_masks([(ids[1], 1, words_at(ids[1], 1))])
        iterate(ledger, 4)
        ledger.set_masks([(ids[1], 2, words_at(ids[1], 2))])
        events = ledger.run()
    assert [ends_of(events)[one].finish_reason for one in ids] == ["cancelled", "length"]
    assert outputs_of(events)[ids[1]] == expected_under_masks(masked(5, 3), ids[1])


@COURSES
def test_preempted_between_the_forward_pass_and_the_sampler(plans_ahead):
    subject = masked(5, 6, sampling=SAMPLINGS[2])
    with Ledger(plans_ahead=plans_ahead, decode_ns=LONG_NS) as ledger:
        request_id = ledger.submit(subject)
        events = []
        for index in range(1, subject.max_tokens):
            while token_counts(ledger, events).get(request_id, 0) < index:
                ledger.iterate()
            iterate(ledger, 2)
            assert ledger.calls()["launch"] > ledger.calls()["sample"]
            ledger.preempt(request_id)
            iterate(ledger, 3)
            ledger.set_masks([(request_id, index, words_at(request_id, index))])
        events += ledger.run()
        info = ledger.info()
    assert info["num_preemptions"] == subject.max_tokens - 1
    assert outputs_of(events)[request_id] == expected_under_masks(subject, request_id)


@COURSES
def test_the_synchronous_face_waits_for_no_mask(plans_ahead):
    with Ledger(plans_ahead=plans_ahead, decode_ns=LONG_NS) as ledger:
        request_id = ledger.submit(masked(5, 3))
        iterate(ledger, 4)
        assert ledger.calls()["launch"] == 2
        state, _ = ledger.prefill(prompt_of(7))
        ledger.free_state(state)
        ledger.set_masks([(request_id, 1, words_at(request_id, 1))])
        iterate(ledger, 4)
        ledger.set_masks([(request_id, 2, words_at(request_id, 2))])
        events = ledger.run()
    assert outputs_of(events)[request_id] == expected_under_masks(masked(5, 3), request_id)


@COURSES
def test_a_newcomer_ends_the_wait_of_those_who_stood_alone(plans_ahead):
    with Ledger(is_manual=0, plans_ahead=plans_ahead) as ledger:
        waiting = [ledger.submit(masked(5 + i, 3)) for i in range(2)]
        newcomer = ledger.submit(free())
        events = []
        while newcomer not in ends_of(events):
            assert ledger.wait(60)
            events += ledger.poll()
        assert token_counts(ledger, events) == {**dict.fromkeys(waiting, 1), newcomer: 12}


@COURSES
def test_an_engine_closes_between_the_forward_pass_and_the_sampler(plans_ahead):
    ledger = Ledger(is_manual=0, plans_ahead=plans_ahead)
    for i in range(3):
        ledger.submit(masked(5 + i, 3))
    while ledger.calls()["launch"] < 2:
        time.sleep(0.001)
    closing = threading.Thread(target=ledger.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_sampler_that_fails_after_its_forward_pass_ends_its_requests(world_size):
    with engine_of(world_size) as engine:
        arm(operation="sample", call=1)
        full = everything(VOCAB)([])
        request_id = engine.submit(asked(0, mask=full))
        await_tokens(engine, 1)
        engine.set_masks([(request_id, 1, full)])
        end = await_end(engine)
        assert (end.kind, end.status) == ("failed", Status.GLM_DEVICE_ERROR)
        assert "sample failed on rank 0" in end.message
        assert engine.info()["owned_pages"] == 0
        assert engine.info()["is_usable"] == (world_size == 1)
        if world_size == 1:
            assert len(run_requests(engine, [asked(1)])[0].tokens) == asked(1).max_tokens
