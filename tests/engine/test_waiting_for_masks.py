"""Requests that wait for the mask of their next token, and masks that are refused."""

import time

import numpy as np
import pytest

from glm_engine.core.engine import Request, Sampling
from glm_engine.core.errors import BadInputError, EngineError, Status
from tests.engine.masking import (
    DRAWN,
    MAX_TOKENS,
    VOCAB,
    asked,
    await_end,
    await_events,
    await_tokens,
    everything,
    random_masks,
    run_masked,
)
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS


@pytest.fixture(scope="module")
def engine():
    with open_engine(CAPITALS, max_batch=8, max_seq=96) as opened:
        yield opened


def test_masks_of_another_size_and_on_unknown_requests_are_refused(engine):
    full = everything(VOCAB)([])
    for wrong in (full[:-1], np.ones(VOCAB, dtype=bool), np.repeat(full, 2)[::2]):
        with pytest.raises(BadInputError, match=r"mask: expected 256 contiguous bytes"):
            engine.submit(asked(0, mask=wrong))
    with pytest.raises(EngineError, match="request 987654 is unknown or has ended") as caught:
        engine.set_masks([(987654, 1, full)])
    assert caught.value.status == Status.GLM_NOT_FOUND
    assert engine.info()["live_requests"] == 0


def test_a_request_without_masks_takes_none():
    """It cannot end before: the one that is given no mask holds the batch."""
    with open_engine(CAPITALS, max_batch=1, max_seq=96) as opened:
        opened.submit(asked(0, mask=everything(VOCAB)([])))
        request_id = opened.submit(asked(1))
        with pytest.raises(EngineError, match="was submitted without a mask") as caught:
            opened.set_masks([(request_id, 1, None)])
        assert caught.value.status == Status.GLM_INVALID_ARGUMENT


def test_masks_come_in_order_and_after_the_token_before(engine):
    full = everything(VOCAB)([])
    request_id = engine.submit(asked(0, mask=full))
    await_tokens(engine, 1)
    for index in (0, 2, -1, 2**31 - 1):
        with pytest.raises(EngineError, match=rf"index is {index}, .* output token 1 next"):
            engine.set_masks([(request_id, index, full)])
    engine.set_masks([(request_id, 1, full)])
    engine.wait(60)
    engine.set_masks([(request_id, 2, None)])
    assert [event.index for event in await_tokens(engine, 2)] == [1, 2]
    engine.cancel(request_id)
    assert await_end(engine).finish_reason == "cancelled"


def test_a_mask_before_its_token_is_due_says_so():
    full = everything(VOCAB)([])
    with open_engine(CAPITALS, max_batch=1, max_seq=96) as opened:
        first = opened.submit(asked(0, mask=full))
        second = opened.submit(asked(1, mask=full))
        with pytest.raises(EngineError, match="has sampled only 0 tokens"):
            opened.set_masks([(second, 1, full)])
        opened.cancel(first)
        end = await_end(opened)
        assert (end.request_id, end.finish_reason) == (first, "cancelled")
        opened.cancel(second)
        assert await_end(opened).request_id == second


def waiting_request(engine, **changes) -> int:
    """Submits a masked request and returns when it waits for its second mask."""
    request_id = engine.submit(asked(0, mask=everything(VOCAB)([]), **changes))
    await_tokens(engine, 1)
    return request_id


def test_a_request_that_waits_is_cancelled(engine):
    request_id = waiting_request(engine)
    assert engine.info()["owned_pages"] > 0
    engine.cancel(request_id)
    assert await_end(engine).finish_reason == "cancelled"
    assert engine.info()["owned_pages"] == 0


def test_a_request_that_waits_meets_its_deadline(engine):
    deadline = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 10**9
    engine.submit(asked(0, mask=everything(VOCAB)([]), deadline_ns=deadline))
    end = await_end(engine)
    assert end.finish_reason == "deadline"
    assert deadline <= end.time_ns
    assert engine.info()["owned_pages"] == 0


def test_nothing_runs_while_all_wait(engine):
    request_ids = [waiting_request(engine) for _ in range(3)]
    costs = (cost_of_waiting(engine) for _ in range(10))
    assert any(seconds < 0.1 and num_steps == 0 for seconds, num_steps in costs)
    for request_id in request_ids:
        engine.cancel(request_id)
        await_end(engine)


def cost_of_waiting(engine) -> tuple[float, int]:
    """Processor time and steps of half a second; the first may see the last step of before."""
    steps, begin = engine.info()["num_steps"], time.process_time()
    time.sleep(0.5)
    return time.process_time() - begin, engine.info()["num_steps"] - steps


def test_others_go_on_while_one_waits(engine):
    request_id = waiting_request(engine)
    (finished,) = run_requests_beside(engine, request_id, asked(2))
    assert finished == run_requests(engine, [asked(2)])[0].tokens
    engine.cancel(request_id)
    await_end(engine)


def run_requests_beside(engine, waiting: int, request: Request) -> list[list[int]]:
    engine.submit(request)
    events = await_events(engine, lambda events: events[-1].ends_request)
    assert waiting not in {event.request_id for event in events}
    return [[event.token_id for event in events if event.kind == "token"]]


@pytest.mark.parametrize("sampling", [Sampling(), DRAWN], ids=["greedy", "drawn"])
def test_preempted_while_it_waits(sampling, engine):
    masks = random_masks(31)
    (plain,) = run_masked(engine, [asked(0, sampling=sampling)], [masks])
    before = engine.info()["num_preemptions"]
    request_id = engine.submit(asked(0, sampling=sampling, mask=masks([])))
    tokens = []
    for index in range(1, MAX_TOKENS):
        tokens += [event.token_id for event in await_tokens(engine, 1)]
        engine.preempt(request_id)
        await_preemptions(engine, before + index)
        engine.set_masks([(request_id, index, masks(tokens))])
    events = await_events(engine, lambda events: events[-1].ends_request)
    assert [*tokens, events[0].token_id] == plain.tokens
    assert events[-1].finish_reason == "length"


def await_preemptions(engine, count: int) -> None:
    deadline = time.monotonic() + 60
    while engine.info()["num_preemptions"] < count:
        assert time.monotonic() < deadline, "the request was not preempted"
        time.sleep(0.001)


def test_an_engine_closes_while_requests_wait():
    with open_engine(CAPITALS, max_batch=4, max_seq=96) as opened:
        full = everything(VOCAB)([])
        for index in range(4):
            opened.submit(asked(index, mask=full))
        await_tokens(opened, 4)
        opened.submit(asked(5, mask=full))
