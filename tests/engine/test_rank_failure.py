"""One rank's device fails: the call ends with its reason, no rank waits, the engine can be freed.

The device library is `failing/backend.c`: the CPU device, of which one operation of one rank
fails at a chosen call, and which counts its allocations.
"""

import time
from contextlib import contextmanager

import pytest

from glm_engine.core.engine import Engine, EngineOptions, Request
from glm_engine.core.errors import EngineError, Status
from tests.engine.failing_device import EVERY_RANK, FOLDER, arm, library
from tests.reference.capitals import CAPITALS, prompts

LAYERS = 4
OPERATIONS = (
    "embed",
    "linear",
    "attention",
    "route",
    "experts",
    "reduce_add_norm_quantise",
    "swiglu_quantise",
    "norm_rope_store",
    "all_gather",
    "all_to_all",
    "accept",
)
CASES = [
    *[(2, 1, operation) for operation in OPERATIONS],
    (4, 0, "linear"),
    (4, 2, "experts"),
    (8, 7, "reduce_add_norm_quantise"),
    (2, 0, "sample"),
    (2, 0, "logits"),
]


@contextmanager
def engine_of(world_size: int, speculate: str = "off"):
    arm()
    options = EngineOptions(
        model_dir=CAPITALS,
        device="cpu",
        library_dir=FOLDER,
        world_size=world_size,
        num_threads=world_size,
        max_batch=4,
        max_seq=64,
        speculate=speculate,
    )
    with Engine(options) as engine:
        yield engine


def submitted_failures(engine: Engine, num_requests: int) -> list[tuple[int, str]]:
    """Status and message of requests that all fail, before or after they are taken."""
    refused, num_taken = [], 0
    for prompt in prompts()[:num_requests]:
        try:
            engine.submit(Request(prompt, max_tokens=16, ignore_eos=True))
            num_taken += 1
        except EngineError as error:
            refused.append((error.status, str(error)))
    ends = [event for event in all_events(engine, num_taken) if event.ends_request]
    assert {event.kind for event in ends} == {"failed"}
    return refused + [(event.status, event.message) for event in ends]


def all_events(engine: Engine, num_requests: int) -> list:
    """Events until every request has ended."""
    events = []
    while sum(event.ends_request for event in events) < num_requests:
        assert engine.wait(60), f"no event within 60 s, so far {events}"
        events += engine.poll()
    return events


@pytest.mark.parametrize(("world_size", "rank", "operation"), CASES)
def test_requests_fail_with_the_rank_and_the_reason(world_size, rank, operation):
    with engine_of(world_size) as engine:
        arm(rank, operation, 1 if operation in ("embed", "logits", "sample") else LAYERS + 1)
        failures = submitted_failures(engine, 3)
    assert library().failing_has_failed()
    for status, message in failures:
        assert status == Status.GLM_DEVICE_ERROR
        for words in (f"on rank {rank}", f"{operation} failed", "made to fail"):
            assert words in message


@pytest.mark.parametrize("operation", ["begin_drafts", "embed_norm_concat", "keep_drafts"])
def test_a_failure_in_the_prediction_layer_names_the_layer(operation):
    with engine_of(2, speculate="mtp") as engine:
        arm(1, operation, 1)
        failures = submitted_failures(engine, 3)
    for _, message in failures:
        assert f"{operation} failed in layer {LAYERS} on rank 1" in message


def test_ranks_that_fail_together_are_all_named():
    with engine_of(4) as engine:
        arm(EVERY_RANK, "embed", 0)
        failures = submitted_failures(engine, 2)
    for _, message in failures:
        assert "embed failed" in message
        assert " failed too" in message
        assert all(message.count(f"rank {rank}") == 1 for rank in range(4))


def test_a_cancelled_rank_whose_own_device_is_lost_is_named_too():
    with engine_of(4) as engine:
        arm(1, "linear", LAYERS + 1)
        library().failing_lose(2)
        failures = submitted_failures(engine, 2)
    for status, message in failures:
        assert status == Status.GLM_DEVICE_ERROR
        assert "on rank 1: made to fail; rank 2 failed too" in message
        assert "rank 0" not in message
        assert "rank 3" not in message


@pytest.mark.parametrize("world_size", [2, 8])
def test_a_lost_group_refuses_whatever_comes_next(world_size):
    prompt = prompts()[0]
    with engine_of(world_size) as engine:
        state, _ = engine.prefill(prompt)
        arm(world_size - 1, "attention", 1)
        with pytest.raises(EngineError, match="attention failed") as caught:
            engine.decode_step(state, 5)
        assert caught.value.status == Status.GLM_DEVICE_ERROR
        assert engine.info()["is_usable"] == 0
        with pytest.raises(EngineError, match="the engine cannot continue: attention failed"):
            engine.decode_step(state, 5)
        with pytest.raises(EngineError, match="the engine cannot continue: attention failed"):
            engine.prefill(prompt)


def test_another_engine_works_after_a_lost_one():
    with engine_of(2) as engine:
        arm(1, "linear", 0)
        with pytest.raises(EngineError, match="linear failed"):
            engine.prefill(prompts()[0])
    with engine_of(2) as engine:
        state, logits = engine.prefill(prompts()[0])
        assert logits.shape == (engine.vocab_size,)
        state.close()


@pytest.mark.parametrize(("world_size", "rank"), [(1, 0), (2, 0), (2, 1), (8, 5)])
def test_a_rank_that_cannot_place_its_weights_is_named(world_size, rank):
    arm(rank, "place_rows", 3)
    options = EngineOptions(
        model_dir=CAPITALS, device="cpu", library_dir=FOLDER, world_size=world_size, max_seq=64
    )
    with pytest.raises(EngineError, match="made to fail") as caught:
        Engine(options)
    assert caught.value.status == Status.GLM_DEVICE_ERROR
    assert f"rank {rank}" in str(caught.value)


def test_one_rank_alone_goes_on_after_a_failed_step():
    with engine_of(1) as engine:
        arm(0, "experts", 0)
        with pytest.raises(EngineError, match="experts failed"):
            engine.prefill(prompts()[0])
        state, _ = engine.prefill(prompts()[0])
        state.close()
        assert engine.info()["is_usable"] == 1


def test_a_refused_plan_allocates_nothing():
    arm()
    small = EngineOptions(CAPITALS, device="cpu", library_dir=FOLDER, memory_limit_bytes=1_000_000)
    with pytest.raises(EngineError, match=r"short\)\. Use a machine with more memory") as caught:
        Engine(small)
    assert caught.value.status == Status.GLM_OUT_OF_MEMORY
    assert library().failing_num_allocations() == 0
    with engine_of(1):
        assert library().failing_num_allocations() > 0


@pytest.fixture
def hanging():
    """Let what is armed hang in place of failing, until the test ends."""
    library().failing_hang(1)
    yield
    library().failing_hang(0)


@pytest.fixture
def course_of_device(request):
    """Whether the device says that its operations may be under way when they have returned."""
    library().failing_be_asynchronous(request.param == "asynchronous")
    yield
    library().failing_be_asynchronous(0)


@pytest.mark.usefixtures("hanging", "course_of_device")
@pytest.mark.parametrize(
    ("world_size", "rank", "operation", "course_of_device"),
    [
        (2, 0, "sample", "synchronous"),
        (4, 3, "reduce_add_norm_quantise", "synchronous"),
        (2, 1, "experts", "asynchronous"),
    ],
    indirect=["course_of_device"],
)
def test_a_rank_that_hangs_is_named_and_ends_all(world_size, rank, operation):
    with engine_of(world_size) as engine:
        arm(rank, operation, 1)
        began = time.monotonic()
        failures = submitted_failures(engine, 3)
        seconds = time.monotonic() - began
        assert engine.info()["is_usable"] == 0
        with pytest.raises(EngineError, match=f"the engine cannot continue: {operation} failed"):
            engine.submit(Request(prompts()[0]))
    print(f"named after {seconds:.2f} s")
    assert seconds < 10
    assert library().failing_has_failed()
    for status, message in failures:
        assert status == Status.GLM_DEVICE_ERROR
        for words in (f"{operation} failed", f"on rank {rank}: the call has not returned"):
            assert words in message


def test_a_rank_that_computes_for_long_does_not_hang():
    with engine_of(2) as engine:
        library().failing_be_busy(4)
        arm(1, "experts", 1)
        failures = submitted_failures(engine, 1)
    assert "made to fail" in failures[0][1]
