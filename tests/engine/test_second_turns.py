"""A conversation's next turn reuses the pages of prompts and of answers, with the same bits."""

from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.verify.device import FP8
from tests.devices import caches_answers
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tests.shapes import generator

VOCAB = 2048
PAGE_SIZE = 16
ASKED = (21, 1, 13, 16)
ANSWERED = (40, 17, 32, 5)
DRAWN = Sampling(temperature=0.9, top_p=0.95, seed=17)
OPTIONS = {"max_batch": 8, "max_seq": 192, "page_size": PAGE_SIZE}
COURSES = [{}, {"kv_dtype": FP8}, {"prefill_chunk": 7}, {"plan_ahead": False}]
SPLITS = [ONE_RANK, Split(2, ExpertLayout.EXPERT_PARALLEL)]


def converse(engine: Engine, key: int) -> list[tuple]:
    """(tokens, bits of their logits, tokens of the prompt, those of them from the cache) of each
    turn, whose prompt is all that was said before and something new."""
    said, turns = [], []
    random = generator("second turns", key)
    for num_asked, num_answered in zip(ASKED, ANSWERED, strict=True):
        said += random.integers(0, VOCAB, num_asked).tolist()
        logits = np.full((num_answered, VOCAB), np.nan, np.float32)
        request = Request(
            prompt=said,
            max_tokens=num_answered,
            ignore_eos=True,
            sampling=replace(DRAWN, temperature=DRAWN.temperature * (key % 2)),
            logits=logits,
            logits_capacity=num_answered,
        )
        [result] = run_requests(engine, [request])
        [cached] = {event.cached_tokens for event in result.events}
        turns.append((result.tokens, logits.tobytes(), len(said), cached))
        said = [*said, *result.tokens]
    return turns


@pytest.mark.parametrize("course", COURSES, ids=str)
@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("key", [0, 1])
def test_turns_reuse_full_pages_and_have_the_bits_of_a_cold_engine(split, course, key):
    with open_engine(CAPITALS, split, **OPTIONS, **course, prefix_cache=False) as engine:
        cold = converse(engine, key)
        assert engine.info()["num_cached_tokens"] == 0
    with open_engine(CAPITALS, split, **OPTIONS, **course) as engine:
        warm = converse(engine, key)
        reused = engine.info()["num_cached_tokens"]
    assert [turn[:3] for turn in warm] == [turn[:3] for turn in cold]
    answered = [(len(tokens) - 1) * caches_answers() for tokens, *_ in warm]
    computed = [0, *(turn[2] + count for turn, count in zip(warm[:-1], answered, strict=False))]
    expected = [count // PAGE_SIZE * PAGE_SIZE for count in computed]
    assert [cached for *_, cached in warm] == expected
    assert reused == sum(expected)


def test_what_one_stream_answers_is_read_by_others_beside_it():
    """Pages that decode steps wrote, while their writer goes on and after it."""
    prompt = generator("read beside").integers(0, VOCAB, 10).tolist()
    writer = Request(prompt=prompt, max_tokens=120, ignore_eos=True)
    with open_engine(CAPITALS, **OPTIONS, prefix_cache=False) as engine:
        [alone] = run_requests(engine, [writer])
        readers = [
            Request(prompt=[*prompt, *alone.tokens[:count], 5], max_tokens=12, ignore_eos=True)
            for count in (6, 7, 38, 70)
        ]
        expected = [one.tokens for one in run_requests(engine, readers)]
    with open_engine(CAPITALS, **OPTIONS) as engine:
        results = run_requests(engine, [writer, *readers])
        again = run_requests(engine, readers)
    assert [one.tokens for one in results] == [alone.tokens, *expected]
    assert [one.tokens for one in again] == expected
    assert [one.events[0].cached_tokens for one in again] == [16, 16, 48, 80]
