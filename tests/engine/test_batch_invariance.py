"""A request's tokens and the bits of its logits do not depend on what else the engine does."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.verify.device import FP8
from tests.devices import device_kind
from tests.engine.masking import random_masks, run_masked
from tests.engine.running import open_engine, preempt_unless_ended, run_requests
from tests.reference.capitals import CAPITALS, prompts
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tests.shapes import generator

VOCAB = 2048
MAX_TOKENS = 10
LONG = 300
ATTEMPTS = 20
NUM_STRANGERS = 31
BATCH = NUM_STRANGERS + 1
RUNS = {"cpu": [0], "futhark": [0, NUM_STRANGERS], "cuda": [0, 1, 2, 15, NUM_STRANGERS]}
KV_DTYPES = (None, FP8)
SPLITS = [ONE_RANK, Split(2, ExpertLayout.EXPERT_PARALLEL)]
DRAWN = Sampling(temperature=0.9, top_p=0.95, seed=11, repetition_penalty=1.1)
OPTIONS = {"max_batch": BATCH, "max_seq": 96, "prefix_cache": False}


def subjects() -> list[Request]:
    """Requests under test: a question, and arbitrary tokens of several pages, greedy and drawn."""
    tokens = generator("batch invariance").integers(0, VOCAB, 45).tolist()
    return [
        Request(prompt=prompts()[0], max_tokens=MAX_TOKENS, ignore_eos=True),
        Request(prompt=tokens, max_tokens=MAX_TOKENS, ignore_eos=True),
        Request(prompt=tokens[:33], max_tokens=MAX_TOKENS, ignore_eos=True, sampling=DRAWN),
    ]


def strangers(count: int = NUM_STRANGERS) -> list[Request]:
    random = generator("strangers")
    return [
        Request(
            prompt=random.integers(0, VOCAB, int(random.integers(1, 60))).tolist(),
            max_tokens=int(random.integers(1, 2 * MAX_TOKENS)),
            sampling=Sampling(temperature=float(index % 2), seed=index),
        )
        for index in range(count)
    ]


def with_logits(request: Request) -> tuple[Request, np.ndarray]:
    logits = np.full((request.max_tokens, VOCAB), np.nan, dtype=np.float32)
    return replace(request, logits=logits, logits_capacity=request.max_tokens), logits


def outcome(engine: Engine, request: Request, others=()) -> tuple[list[int], bytes]:
    """Tokens and logits of a request run together with others."""
    captured, logits = with_logits(request)
    middle = len(others) // 2
    results = run_requests(engine, [*others[:middle], captured, *others[middle:]])
    assert np.isfinite(logits).all()
    return results[middle].tokens, logits.tobytes()


@cache
def alone(split: Split, kv_dtype: int | None = None) -> list[tuple[list[int], bytes]]:
    with open_engine(CAPITALS, split, **OPTIONS, kv_dtype=kv_dtype) as engine:
        return [outcome(engine, request) for request in subjects()]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_among_strangers(split):
    with open_engine(CAPITALS, split, **OPTIONS) as engine:
        results = [outcome(engine, request, strangers()) for request in subjects()]
    assert results == alone(split)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_among_strangers_that_wait_for_masks(split):
    others = strangers(7)
    masks = [None, *(random_masks(index) for index in range(len(others)))]
    with open_engine(CAPITALS, split, **OPTIONS) as engine:
        results = []
        for request in subjects():
            captured, logits = with_logits(request)
            subject, *_ = run_masked(engine, [captured, *others], masks)
            results.append((subject.tokens, logits.tobytes()))
    assert results == alone(split)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
@pytest.mark.parametrize("count", [1, 2, 255, 256])
def test_among_few_and_many_strangers(count, split):
    with open_engine(CAPITALS, split, **{**OPTIONS, "max_batch": count + 1}) as engine:
        results = [outcome(engine, request, strangers(count)) for request in subjects()]
    assert results == alone(split)


@pytest.mark.parametrize("num_strangers", RUNS[device_kind()])
@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
@pytest.mark.parametrize("plan_ahead", [False, True], ids=["one by one", "planned ahead"])
@pytest.mark.parametrize("prefill_chunk", [0, 11], ids=["whole", "chunks"])
def test_over_runs_and_courses_of_steps(num_strangers, graphs, plan_ahead, prefill_chunk):
    if graphs and device_kind() != "cuda":
        pytest.skip("this device captures no graphs: --device-kind cuda runs it")
    course = {"graphs": graphs, "plan_ahead": plan_ahead, "prefill_chunk": prefill_chunk}
    with open_engine(CAPITALS, **OPTIONS, **course) as engine:
        results = [outcome(engine, request, strangers(num_strangers)) for request in subjects()]
    assert results == alone(ONE_RANK)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
@pytest.mark.parametrize("prefill_chunk", [1, 7])
def test_with_the_prompt_in_chunks(split, prefill_chunk):
    with open_engine(CAPITALS, split, **OPTIONS, prefill_chunk=prefill_chunk) as engine:
        results = [outcome(engine, request) for request in subjects()]
    assert results == alone(split)


def test_a_prompt_in_steps_of_few_rows_and_of_many():
    tokens = generator("long prompt").integers(0, VOCAB, LONG).tolist()
    long = Request(prompt=tokens, max_tokens=3, ignore_eos=True)
    results = []
    for chunk in (0, LONG - 3, 70):
        course = {"max_seq": LONG + 8, "prefill_chunk": chunk}
        with open_engine(CAPITALS, **{**OPTIONS, **course}) as engine:
            results += [outcome(engine, long, others) for others in ([], strangers(7))]
    assert results == results[:1] * len(results)


def test_with_steps_too_small_for_the_prompt():
    with open_engine(CAPITALS, **OPTIONS, max_step_tokens=5) as engine:
        results = [outcome(engine, request, strangers()[:4]) for request in subjects()]
    assert results == alone(ONE_RANK)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_preempted_again_and_again(split):
    with open_engine(CAPITALS, split, **OPTIONS) as engine:
        for request, expected in zip(subjects(), alone(split), strict=True):
            before = engine.info()["num_preemptions"]
            for _attempt in range(ATTEMPTS):
                assert preempted_outcome(engine, request) == expected
                if engine.info()["num_preemptions"] > before:
                    break
            else:
                pytest.fail(f"in {ATTEMPTS} attempts each ended before it could be preempted")


def preempted_outcome(engine: Engine, request: Request) -> tuple[list[int], bytes]:
    """Preempts the request whenever it has given a token."""
    captured, logits = with_logits(request)
    request_id = engine.submit(captured)
    tokens, is_live = [], True
    while is_live:
        assert engine.wait(60)
        for event in engine.poll():
            assert event.kind != "failed", event.message
            tokens += [event.token_id] if event.kind == "token" else []
            is_live = is_live and not event.ends_request
        if is_live:
            preempt_unless_ended(engine, request_id)
    return tokens, logits.tobytes()


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_preempted_for_want_of_pages(kv_dtype):
    course = {"num_pages": 9, "max_batch": 6, "kv_dtype": kv_dtype}
    with open_engine(CAPITALS, **{**OPTIONS, **course}) as engine:
        results = [outcome(engine, request, strangers()[:8]) for request in subjects()]
        assert engine.info()["num_preemptions"] > 0
    assert results == alone(ONE_RANK, kv_dtype)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_with_its_prefix_from_the_cache(kv_dtype):
    course = {"prefix_cache": True, "kv_dtype": kv_dtype}
    with open_engine(CAPITALS, **{**OPTIONS, **course}) as engine:
        first = [outcome(engine, request) for request in subjects()]
        cached = engine.info()["num_cached_tokens"]
        second = [outcome(engine, request) for request in subjects()]
        assert engine.info()["num_cached_tokens"] > cached
    assert first == second == alone(ONE_RANK, kv_dtype)


def test_while_the_pool_is_compacted():
    others = strangers()[:6]
    with open_engine(CAPITALS, **{**OPTIONS, "num_pages": 64}) as engine:
        captured, logits = zip(*(with_logits(request) for request in subjects()), strict=True)
        ids = [engine.submit(request) for request in [*others, *captured]]
        tokens, live, step = {i: [] for i in ids}, set(ids), 0
        while live:
            assert engine.wait(60)
            for event in engine.poll():
                assert event.kind != "failed", event.message
                tokens[event.request_id] += [event.token_id] if event.kind == "token" else []
                live -= {event.request_id} if event.ends_request else set()
            step += 1
            engine.resize_pool([64, 20, 40, 16][step % 4])
    subject_ids = ids[len(others) :]
    results = [(tokens[i], rows.tobytes()) for i, rows in zip(subject_ids, logits, strict=True)]
    assert results == alone(ONE_RANK)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_through_the_synchronous_face(split):
    request, (tokens, expected) = subjects()[1], alone(split)[1]
    with open_engine(CAPITALS, split, **OPTIONS, prefill_chunk=7) as engine:
        engine.submit(strangers()[0])
        state, first = engine.prefill(request.prompt)
        later = [engine.decode_step(state, token) for token in tokens[:-1]]
        state.close()
    assert np.stack([first, *later]).tobytes() == expected
