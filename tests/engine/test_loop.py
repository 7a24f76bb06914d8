"""The engine's thread over the ledger: queues, events, waiting, and the synchronous face."""

import gc
import os
import select
import threading
import time

import numpy as np
import pytest

from glm_engine.core.abi import EVENT_PROMPT_TOKEN, EVENT_TOKEN
from glm_engine.core.errors import EngineError, Status
from glm_engine.core.requests import Request, Sampling
from tests.engine.ledger import DEFAULTS, Ledger, ends_of, expected_tokens, outputs_of
from tests.shapes import generator

FOREVER = 10**6
LONG = Request(prompt=[1, 2, 3], max_tokens=FOREVER, ignore_eos=True)
BIG = {"max_seq": 1_000_000, "num_pages": 500_000, "is_manual": 0}


@pytest.fixture(autouse=True, params=[0, 1], ids=["landed", "ahead"])
def plans_ahead(request, monkeypatch):
    """Every test with steps that land before the next is planned, and with plans ahead."""
    monkeypatch.setitem(DEFAULTS, "plans_ahead", request.param)
    return request.param


def prompt_of(length: int, *key) -> list[int]:
    return generator("loop", length, *key).integers(0, 96, length).tolist()


def request_of(index: int) -> Request:
    return Request(prompt=prompt_of(1 + index % 20, index), max_tokens=1 + index % 9)


def collect(ledger: Ledger, count: int, seconds: float = 60) -> list:
    """Events until `count` requests have ended."""
    events = []
    limit = time.monotonic() + seconds
    while sum(event.ends_request for event in events) < count:
        assert time.monotonic() < limit, f"{len(ends_of(events))} of {count} ended"
        if ledger.wait(1):
            events += ledger.poll()
    return events


def first_token(ledger: Ledger) -> list:
    assert ledger.wait(60)
    return ledger.poll()


def test_a_loop_that_never_ran_closes():
    with Ledger(is_manual=0) as ledger:
        assert ledger.poll() == []
        assert not ledger.wait(0)


def test_requests_of_many_threads_all_finish():
    with Ledger(is_manual=0, max_queue=1000) as ledger:
        requests = {}

        def submit(begin):
            for index in range(begin, begin + 25):
                requests[ledger.submit(request_of(index))] = request_of(index)

        threads = [threading.Thread(target=submit, args=(25 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outputs = outputs_of(collect(ledger, 100))
    assert outputs == {i: expected_tokens(request) for i, request in requests.items()}


def test_the_event_fd_is_readable_exactly_while_events_wait():
    with Ledger(is_manual=0) as ledger:
        poller = select.poll()
        poller.register(ledger.library.ledger_event_fd(ledger.handle), select.POLLIN)
        assert poller.poll(0) == []
        ledger.submit(Request(prompt=[5], max_tokens=3))
        events = []
        while not ends_of(events):
            assert poller.poll(60_000)
            events += ledger.poll()
        assert poller.poll(0) == []


def test_waiting_costs_no_processor_time():
    with Ledger(is_manual=0) as ledger:
        ledger.submit(Request(prompt=[5], max_tokens=3))
        collect(ledger, 1)
        before = time.process_time()
        assert not ledger.wait(0.5)
        assert time.process_time() - before < 0.1


def test_cancelling_ends_a_request_once():
    with Ledger(**BIG) as ledger:
        request_id = ledger.submit(LONG)
        events = first_token(ledger)
        ledger.cancel(request_id)
        events += collect(ledger, 1)
        assert ends_of(events)[request_id].finish_reason == "cancelled"
        with pytest.raises(EngineError, match=f"request {request_id} is unknown") as caught:
            ledger.cancel(request_id)
        assert caught.value.status == Status.GLM_NOT_FOUND
        with pytest.raises(EngineError, match="request 77 is unknown or has ended"):
            ledger.preempt(77)
        assert ledger.info()["owned_pages"] == 0


def test_closing_ends_a_running_loop():
    with Ledger(**BIG) as ledger:
        ledger.submit(LONG)
        first_token(ledger)


def test_a_deadline_ends_a_running_and_a_waiting_request():
    with Ledger(**BIG, max_batch=1) as ledger:
        soon = time.monotonic_ns() + 200_000_000
        prompt, tokens = LONG.prompt, LONG.max_tokens
        ids = [
            ledger.submit(Request(prompt=prompt, max_tokens=tokens, deadline_ns=soon + 1000 * i))
            for i in range(2)
        ]
        ends = ends_of(collect(ledger, 2))
        assert [ends[i].finish_reason for i in ids] == ["deadline", "deadline"]
        assert all(ends[i].time_ns >= soon for i in ids)


def test_a_deadline_wakes_a_loop_that_has_nothing_else_to_do():
    with Ledger(is_manual=0, num_pages=4, prefix_cache=0) as ledger:
        state, _ = ledger.prefill(list(range(12)))
        soon = time.monotonic_ns() + 100_000_000
        request_id = ledger.submit(Request(prompt=[1] * 8, max_tokens=4, deadline_ns=soon))
        before = time.process_time()
        assert ends_of(collect(ledger, 1))[request_id].finish_reason == "deadline"
        assert time.process_time() - before < 0.1
        ledger.free_state(state)


def test_a_request_that_waits_for_a_states_pages_goes_on_when_it_is_freed():
    request = Request(prompt=[1] * 8, max_tokens=4)
    with Ledger(is_manual=0, num_pages=4) as ledger:
        state, _ = ledger.prefill(list(range(12)))
        request_id = ledger.submit(request)
        assert not ledger.wait(0.1)
        ledger.free_state(state)
        assert outputs_of(collect(ledger, 1))[request_id] == expected_tokens(request)


@pytest.mark.parametrize(("max_batch", "max_queue"), [(1, 0), (1, 1), (2, 3)])
def test_a_burst_fills_batch_and_queue_and_no_more(max_batch, max_queue):
    most = max_batch + max_queue
    with Ledger(max_queue=max_queue, max_batch=max_batch, is_manual=1) as ledger:
        for index in range(most):
            ledger.submit(request_of(index))
        expected = (
            rf"^the queue is full: {most} .*\(max_batch {max_batch}, max_queue {max_queue}\)$"
        )
        with pytest.raises(EngineError, match=expected) as caught:
            ledger.submit(request_of(9))
        assert caught.value.status == Status.GLM_QUEUE_FULL
        assert len(ends_of(ledger.run())) == most
        ledger.submit(request_of(9))


def test_no_event_is_lost_when_nobody_polls():
    requests = [Request(prompt=[i % 90], max_tokens=60) for i in range(1200)]
    outputs = {}
    with Ledger(is_manual=0, max_queue=1200, num_pages=200) as ledger:
        ids = [ledger.submit(request) for request in requests]
        num_steps = -1
        while ledger.info()["num_steps"] > num_steps:
            num_steps = ledger.info()["num_steps"]
            time.sleep(0.1)
        assert ledger.info()["live_requests"] > 0
        while ledger.info()["live_requests"] > 0 or ledger.wait(0):
            records = ledger.poll_records()
            for record in records[records["kind"] == EVENT_TOKEN]:
                outputs.setdefault(int(record["request_id"]), []).append(int(record["token_id"]))
    assert {len(tokens) for tokens in outputs.values()} == {60}
    for request_id, request in list(zip(ids, requests, strict=True))[::100]:
        assert outputs[request_id] == expected_tokens(request)


def test_prompt_tokens_that_nobody_takes_hold_the_engine_up_and_are_not_lost():
    requests = [
        Request(prompt=prompt_of(2000, index), max_tokens=0, num_prompt_logprobs=0)
        for index in range(40)
    ]
    options = {"max_seq": 2048, "num_pages": 8192, "max_step_tokens": 512, "max_logit_rows": 512}
    with Ledger(is_manual=0, **options) as ledger:
        ids = [ledger.submit(request) for request in requests]
        num_steps = -1
        while ledger.info()["num_steps"] > num_steps:
            num_steps = ledger.info()["num_steps"]
            time.sleep(0.3)
        assert ledger.info()["live_requests"] > 0
        places = {request_id: [] for request_id in ids}
        while ledger.info()["live_requests"] > 0 or ledger.wait(0):
            records = ledger.poll_records()
            for record in records[records["kind"] == EVENT_PROMPT_TOKEN]:
                places[int(record["request_id"])].append(int(record["index"]))
    assert all(found == list(range(1, 2000)) for found in places.values())


def test_log_probabilities_come_with_their_tokens():
    with Ledger(is_manual=0) as ledger:
        request = Request(prompt=[4], max_tokens=2, sampling=Sampling(num_logprobs=3))
        ledger.submit(request)
        tokens = [event for event in collect(ledger, 1) if event.kind == "token"]
    for event, token in zip(tokens, expected_tokens(request), strict=True):
        assert event.top_logprobs == [((token + i) % 97, -1.0 - i) for i in range(3)]
        assert event.logprob == -1


def test_both_faces_share_the_engine():
    request = Request(prompt=prompt_of(9), max_tokens=50)
    whole = expected_tokens(request)
    with Ledger(**{**BIG, "max_seq": 5000}) as ledger:
        ids = [ledger.submit(LONG) for _ in range(3)]
        first_token(ledger)
        for _ in range(5):
            state, _ = ledger.prefill(request.prompt)
            tokens = ledger.run_batch_decode([state], [Sampling()], 50)
            assert tokens[:, 0].tolist() == whole
            ledger.free_state(state)
        for request_id in ids:
            ledger.cancel(request_id)
        collect(ledger, 3)


@pytest.mark.parametrize("prefill_chunk", [0, 1, 7])
def test_prefill_gives_all_positions(prefill_chunk):
    prompt = prompt_of(30)
    with Ledger(prefill_chunk=prefill_chunk) as ledger:
        state, all_logits = ledger.prefill(prompt, all_positions=True)
        for length in (1, 2, 17, 30):
            shorter, last = ledger.prefill(prompt[:length])
            assert np.array_equal(last[0], all_logits[length - 1])
            ledger.free_state(shorter)
        ledger.free_state(state)
        assert ledger.info()["owned_pages"] == 0


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, seed=3)])
def test_batch_decode_continues_where_each_state_stands(sampling):
    requests = [
        Request(prompt=prompt_of(length), max_tokens=12, sampling=sampling) for length in (1, 8, 13)
    ]
    wholes = [expected_tokens(request) for request in requests]
    with Ledger() as ledger:
        states = [ledger.prefill(request.prompt)[0] for request in requests]
        ledger.decode_step(states[1], wholes[1][0])
        starts = [0, 1, 0]
        first = ledger.run_batch_decode(states, [sampling] * 3, 4)
        second = ledger.run_batch_decode(states[::-1], [sampling] * 3, 3)[:, ::-1]
        ledger.decode_step(states[2], wholes[2][7])
        last = ledger.run_batch_decode(states[2:], [sampling], 2)
        tokens = np.concatenate([first, second])
        for column, (start, whole) in enumerate(zip(starts, wholes, strict=True)):
            assert tokens[:, column].tolist() == whole[start : start + 7]
        assert last[:, 0].tolist() == wholes[2][8:10]
        for state in states:
            ledger.free_state(state)


def test_batch_decode_counts_for_penalties():
    sampling = Sampling(frequency_penalty=0.5, seed=1)
    request = Request(prompt=prompt_of(7), max_tokens=10, sampling=sampling)
    with Ledger() as ledger:
        state, _ = ledger.prefill(request.prompt)
        tokens = [ledger.run_batch_decode([state], [sampling], n) for n in (3, 1, 6)]
        assert np.concatenate(tokens)[:, 0].tolist() == expected_tokens(request)
        ledger.free_state(state)


def test_empty_batches_and_no_steps_are_nothing():
    with Ledger() as ledger:
        assert ledger.run_batch_decode([], [], 3).shape == (3, 0)
        state, _ = ledger.prefill([1])
        assert ledger.run_batch_decode([state], [Sampling()], 0).shape == (0, 1)
        ledger.free_state(state)


def test_misuse_of_states_is_refused():
    with Ledger(num_pages=5, max_batch=2) as ledger, Ledger() as other:
        state, _ = ledger.prefill(list(range(14)))
        with pytest.raises(
            EngineError, match="2 more KV cache pages are needed, but only 1 of 5"
        ) as caught:
            ledger.prefill(list(range(6)))
        assert caught.value.status == Status.GLM_OUT_OF_MEMORY
        with pytest.raises(EngineError, match="state with 14 tokens has no room for 51 more"):
            ledger.run_batch_decode([state], [Sampling()], 51)
        with pytest.raises(EngineError, match="12 more KV cache pages are needed"):
            ledger.run_batch_decode([state], [Sampling()], 50)
        with pytest.raises(EngineError, match=r"states\[1\] repeats states\[0\]"):
            ledger.run_batch_decode([state, state], [Sampling()] * 2, 1)
        with pytest.raises(EngineError, match="from another engine"):
            other.decode_step(state, 1)
        with pytest.raises(EngineError, match="null, already freed or from another engine"):
            ledger.decode_step(None, 1)
        with pytest.raises(EngineError, match=r"tokens\[0\] is token 97"):
            ledger.decode_step(state, 97)
        second, _ = ledger.prefill([1])
        with pytest.raises(EngineError, match=r"all 2 sequence slots \(max_batch\)"):
            ledger.prefill([1])
        for one in (state, second):
            ledger.free_state(one)
        assert ledger.info()["free_pages"] == 5


def test_a_state_survives_a_failed_step():
    prompt = prompt_of(5)
    with Ledger() as ledger:
        state, _ = ledger.prefill(prompt)
        ledger.fail_at(step=0)
        with pytest.raises(EngineError, match="linear failed in layer 3"):
            ledger.decode_step(state, 9)
        after = ledger.decode_step(state, 9)
        fresh, _ = ledger.prefill(prompt)
        assert np.array_equal(after, ledger.decode_step(fresh, 9))
        for one in (state, fresh):
            ledger.free_state(one)


def test_logits_that_are_not_finite_name_their_position():
    with Ledger() as ledger:
        with pytest.raises(EngineError, match="after position 3 are not finite") as caught:
            ledger.prefill([1, 2, 3, 96])
        assert caught.value.status == Status.GLM_NUMERIC_ERROR
        state, _ = ledger.prefill([1, 2, 3])
        with pytest.raises(EngineError, match="after position 3 are not finite"):
            ledger.decode_step(state, 96)
        ledger.free_state(state)
        assert ledger.info()["owned_pages"] == 0


def test_the_event_fd_is_closed_with_the_loop():
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with Ledger(is_manual=0) as ledger:
        ledger.submit(Request(prompt=[1], max_tokens=1))
        collect(ledger, 1)
    assert len(os.listdir("/proc/self/fd")) == before
