"""The engine as a Python object: both faces, errors, and what close leaves behind."""

import gc
import os
import select
import threading
import weakref

import numpy as np
import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.core import abi
from glm_engine.core.engine import (
    Engine,
    EngineOptions,
    Request,
    Sampling,
    inspect_checkpoint,
    plan,
)
from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.text.tokenizer import GlmTokenizer

OPTIONS = {"device": "cpu", "max_batch": 8, "max_seq": 256, "num_threads": 2}


@pytest.fixture(scope="module")
def engine():
    with Engine(EngineOptions(CAPITALS, **OPTIONS)) as engine:
        yield engine


@pytest.fixture(scope="module")
def prompt():
    return GlmTokenizer(CAPITALS).encode("The capital of France is")


def events_until_ended(engine, *request_ids):
    live, events = set(request_ids), []
    while live:
        assert engine.wait(60)
        new = engine.poll()
        events += new
        live -= {one.request_id for one in new if one.ends_request}
    return events


def tokens_of(events, request_id):
    return [one.token_id for one in events if one.kind == "token" and one.request_id == request_id]


def test_both_faces_give_the_same_tokens(engine, prompt):
    request_id = engine.submit(Request(prompt, max_tokens=6, ignore_eos=True))
    tokens = tokens_of(events_until_ended(engine, request_id), request_id)
    assert len(tokens) == 6

    state, logits = engine.prefill(prompt)
    greedy = [int(np.argmax(logits))]
    while len(greedy) < 6:
        greedy.append(int(np.argmax(engine.decode_step(state, greedy[-1]))))
    state.close()
    assert greedy == tokens

    states = [engine.prefill(prompt)[0] for _ in range(3)]
    batch = engine.run_batch_decode(states, [Sampling()] * 3, 6)
    for one in states:
        one.close()
    assert batch.T.tolist() == [tokens] * 3


def test_logits_of_all_positions_end_in_the_last(engine, prompt):
    last_state, last = engine.prefill(prompt)
    all_state, every = engine.prefill(prompt, all_positions=True)
    assert every.shape == (len(prompt), engine.vocab_size)
    assert np.array_equal(every[-1], last)
    last_state.close()
    all_state.close()


def test_logits_that_tokens_were_sampled_from(engine, prompt):
    buffer = np.zeros((4, engine.vocab_size), dtype=np.float32)
    request = Request(prompt, max_tokens=4, ignore_eos=True, logits=buffer, logits_capacity=4)
    request_id = engine.submit(request)
    tokens = tokens_of(events_until_ended(engine, request_id), request_id)
    assert buffer.argmax(axis=1).tolist() == tokens


def test_events_of_a_request(engine, prompt):
    request_id = engine.submit(Request(prompt, max_tokens=3, ignore_eos=True))
    events = events_until_ended(engine, request_id)
    assert [one.kind for one in events] == ["token"] * 3 + ["finished"]
    assert [one.index for one in events[:3]] == [0, 1, 2]
    assert events[-1].finish_reason == "length"
    assert events[0].prompt_tokens == len(prompt)
    times = [one.time_ns for one in events]
    assert times == sorted(times)
    assert times[0] > 0


def test_event_descriptor_is_readable_while_events_wait(engine, prompt):
    request_id = engine.submit(Request(prompt, max_tokens=1))
    readable, _, _ = select.select([engine.event_fd()], [], [], 30)
    assert readable == [engine.event_fd()]
    events_until_ended(engine, request_id)
    assert select.select([engine.event_fd()], [], [], 0)[0] == []


def test_wait_without_events_is_over_in_time(engine):
    assert engine.wait(0.01) is False
    assert engine.poll() == []


def test_cancelled_request_ends_once(engine, prompt):
    everything = b"\xff" * (4 * -(-engine.vocab_size // 32))
    request_id = engine.submit(Request(prompt, max_tokens=200, ignore_eos=True, mask=everything))
    engine.cancel(request_id)
    events = events_until_ended(engine, request_id)
    assert events[-1].finish_reason == "cancelled"
    assert sum(one.ends_request for one in events) == 1


def test_cancelling_an_unknown_request(engine):
    with pytest.raises(EngineError) as caught:
        engine.cancel(987654321)
    assert caught.value.status == Status.GLM_NOT_FOUND


def test_stop_tokens_and_sequences(engine, prompt):
    request_id = engine.submit(Request(prompt, max_tokens=8, ignore_eos=True))
    tokens = tokens_of(events_until_ended(engine, request_id), request_id)
    stopped = engine.submit(Request(prompt, max_tokens=8, ignore_eos=True, stop_tokens=[tokens[1]]))
    events = events_until_ended(engine, stopped)
    assert tokens_of(events, stopped) == tokens[:2]
    assert events[-1].finish_reason == "stop_token"
    sequence = engine.submit(
        Request(prompt, max_tokens=8, ignore_eos=True, stop_sequences=[tokens[1:3]])
    )
    events = events_until_ended(engine, sequence)
    assert tokens_of(events, sequence) == tokens[:3]
    assert events[-1].finish_reason == "stop_sequence"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [-1]}, "-1"),
        ({"prompt": [2**31 - 1]}, str(2**31 - 1)),
        ({"prompt": [1] * 300}, "prompt"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"sampling": Sampling(temperature=float("inf"))}, "temperature"),
        ({"stop_tokens": [-3]}, "-3"),
        ({"biases": {10**6: 1.0}}, "1000000"),
        ({"biases": {5: float("nan")}}, "bias"),
    ],
)
def test_bad_requests_are_named_and_leave_the_engine_usable(engine, prompt, values, word):
    with pytest.raises(EngineError, match=word) as caught:
        engine.submit(Request(**{"prompt": prompt, **values}))
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT
    request_id = engine.submit(Request(prompt, max_tokens=1))
    assert tokens_of(events_until_ended(engine, request_id), request_id)


def test_info_accounts_for_every_page(engine):
    info = engine.info()
    assert info["free_pages"] + info["cached_pages"] + info["owned_pages"] == info["total_pages"]
    assert info["is_usable"] == 1
    assert info["vocab_size"] == 2048
    assert "cpu" in info["device"].lower()


def test_progress_reaches_the_total():
    seen = []
    options = EngineOptions(
        CAPITALS, **OPTIONS, progress=lambda done, total, stage: seen.append((done, total, stage))
    )
    Engine(options).close()
    assert seen
    done = [row[0] for row in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1] > 0
    assert all(row[2] for row in seen)


def test_closing_frees_states_threads_and_descriptors(prompt):
    gc.collect()
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    engine = Engine(EngineOptions(CAPITALS, **OPTIONS, world_size=2))
    engine.prefill(prompt)
    engine.submit(Request(prompt, max_tokens=100, ignore_eos=True))
    engine.close()
    engine.close()
    assert engine.states == set()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_polled_records_hold_what_events_say(engine, prompt):
    sampling = Sampling(num_logprobs=3)
    request = Request(prompt, max_tokens=5, ignore_eos=True, sampling=sampling)
    events = events_until_ended(engine, engine.submit(request))
    request_id, records = engine.submit(request), []
    while not records or records[-1]["kind"] == abi.EVENT_TOKEN:
        assert engine.wait(60)
        records.extend(engine.poll_records())
    assert {int(record["request_id"]) for record in records} == {request_id}
    assert [record["token_id"] for record in records] == [event.token_id for event in events]
    assert [record["index"] for record in records] == [0, 1, 2, 3, 4, 5]
    for record, event in zip(records[:-1], events[:-1], strict=True):
        assert record["logprob"] == np.float32(event.logprob)
        assert record["top_ids"][:3].tolist() == [token for token, _ in event.top_logprobs]
    assert records[-1]["finish_reason"] == abi.FINISH_REASONS.index("length")
    assert len(engine.poll_records()) == 0


def test_polled_records_stay_as_they_were(engine, prompt):
    engine.submit(Request(prompt, max_tokens=1))
    assert engine.wait(60)
    first = engine.poll_records()
    before = first.tobytes()
    events_until_ended(engine, engine.submit(Request([1, 2], max_tokens=3)))
    assert first.tobytes() == before


def test_a_logits_buffer_is_let_go_by_polled_records(engine, prompt):
    logits = np.zeros((1, engine.vocab_size), dtype=np.float32)
    engine.submit(Request(prompt, max_tokens=1, logits=logits, logits_capacity=1))
    assert len(engine.buffers) == 1
    num_ended = 0
    while num_ended == 0:
        assert engine.wait(60)
        num_ended = np.count_nonzero(engine.poll_records()["kind"] != abi.EVENT_TOKEN)
    assert engine.buffers == {}


def test_masks_from_any_buffer(engine, prompt):
    size = 4 * -(-engine.vocab_size // 32)
    only_five = bytearray(size)
    only_five[0] = 1 << 5
    request_id = engine.submit(
        Request(prompt, max_tokens=3, ignore_eos=True, mask=bytes(only_five))
    )
    for index in (1, 2):
        assert engine.wait(60)
        assert tokens_of(engine.poll(), request_id) == [5]
        engine.set_masks([(request_id, index, memoryview(only_five))])
    assert tokens_of(events_until_ended(engine, request_id), request_id) == [5]


@pytest.mark.parametrize(
    ("request_id", "index", "message"),
    [(1, 2**31, "index is 2147483648"), (-1, 1, "request_id is -1"), (1, 1.5, "index is 1.5")],
)
def test_numbers_of_a_mask_that_c_cannot_hold(request_id, index, message, engine):
    with pytest.raises(BadInputError, match=message):
        engine.set_masks([(request_id, index, None)])


def test_calls_after_close_say_so(prompt):
    engine = Engine(EngineOptions(CAPITALS, **OPTIONS))
    state, _ = engine.prefill(prompt)
    engine.close()
    calls = [
        engine.info,
        engine.poll,
        engine.poll_records,
        engine.event_fd,
        lambda: engine.wait(0),
        lambda: engine.submit(Request(prompt)),
        lambda: engine.cancel(1),
        lambda: engine.preempt(1),
        lambda: engine.set_masks([(1, 1, None)]),
        lambda: engine.resize_pool(8),
        lambda: engine.prefill(prompt),
        lambda: engine.decode_step(state, 1),
        lambda: engine.run_batch_decode([], [], 1),
    ]
    for call in calls:
        with pytest.raises(BadInputError, match="the engine is closed"):
            call()


def test_closed_state_says_so(engine, prompt):
    state, _ = engine.prefill(prompt)
    state.close()
    state.close()
    with pytest.raises(BadInputError, match="the state is closed"):
        engine.decode_step(state, 1)
    with pytest.raises(BadInputError, match="the state is closed"):
        engine.run_batch_decode([state], [Sampling()], 1)


def test_state_freed_through_another_engine_stays_with_its_own(engine, prompt):
    with Engine(EngineOptions(CAPITALS, **OPTIONS)) as other:
        owned = engine.info()["owned_pages"]
        state, _ = engine.prefill(prompt)
        engine.library.free_request_state(other.pointer, state.pointer)
        assert engine.decode_step(state, 1).shape == (engine.vocab_size,)
        state.close()
        assert engine.info()["owned_pages"] == owned
        assert other.info()["owned_pages"] == 0


def test_numbers_of_the_synchronous_face_are_not_cut_off(engine, prompt):
    state, _ = engine.prefill(prompt)
    with pytest.raises(BadInputError, match="token is 4294967301"):
        engine.decode_step(state, 2**32 + 5)
    with pytest.raises(BadInputError, match="num_pages is 4294967304"):
        engine.resize_pool(2**32 + 8)
    with pytest.raises(
        BadInputError, match=r"expected one set of sampling parameters per state \(1\), got 0"
    ):
        engine.run_batch_decode([state], [], 1)
    with pytest.raises(EngineError, match="num_steps is -1"):
        engine.run_batch_decode([state], [Sampling()], -1)
    state.close()


def test_logits_buffer_lives_until_its_request_ends(engine, prompt):
    buffer = np.zeros((4, engine.vocab_size), dtype=np.float32)
    alive = weakref.ref(buffer)
    request = Request(prompt, max_tokens=4, ignore_eos=True, logits=buffer, logits_capacity=4)
    request_id = engine.submit(request)
    del buffer, request
    gc.collect()
    assert alive() is not None
    events_until_ended(engine, request_id)
    gc.collect()
    assert alive() is None


def test_logits_buffer_too_small_is_refused(engine, prompt):
    buffer = np.zeros((3, engine.vocab_size), dtype=np.float32)
    with pytest.raises(BadInputError, match="4 rows"):
        engine.submit(Request(prompt, logits=buffer, logits_capacity=4))


def test_loading_errors_carry_their_status(tmp_path):
    with pytest.raises(EngineError, match=str(tmp_path)) as caught:
        Engine(EngineOptions(tmp_path, device="cpu"))
    assert caught.value.status != Status.GLM_OK
    with pytest.raises(EngineError):
        inspect_checkpoint(tmp_path / "absent")
    with pytest.raises(EngineError):
        plan(EngineOptions(tmp_path / "absent"))
