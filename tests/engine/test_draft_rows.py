"""Several rows of one sequence in a step have the bits of one row after another."""

import random
from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Request, Sampling
from glm_engine.core.errors import EngineError
from glm_engine.verify.device import FP8
from tests.devices import device_kind
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS, prompts
from tests.reference.configs import CONFIGS, WORLD_SIZES
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tests.shapes import generator

VOCAB = 2048
MOST_ROWS = 4
NUM_WITHOUT_RULES = 5
POSITIONS = [*range(1, 18), *range(239, 274)]
BORDERS = [1, *range(12, 18), *range(252, 258)]
ALL_POSITIONS = range(1, 274)
SPLITS = [
    ONE_RANK,
    *(Split(size, layout) for size in (2, 4, 8) for layout in ExpertLayout),
]
RANDOM_MODELS = [
    (name, Split(size, layout))
    for name in CONFIGS
    for size in WORLD_SIZES.get(name, (1,))
    for layout in (ExpertLayout if size > 1 else [ONE_RANK.expert_layout])
]
SPLITS_OVER_CODES = SPLITS if device_kind() == "cuda" else SPLITS[:2]
PLACED = [(split, None) for split in SPLITS] + [(split, FP8) for split in SPLITS_OVER_CODES]
ACCURACIES = [0.0, 0.3, 0.7, 1.0]
COURSES = [
    {"graphs": graphs, "plan_ahead": plan_ahead}
    for graphs in ([False, True] if device_kind() == "cuda" else [False])
    for plan_ahead in (False, True)
]


def places_of(split: Split, kv_dtype: int | None):
    """Every place of 256 and those behind on GPUs; on CPUs the borders, fewer over ranks and
    over codes."""
    if device_kind() == "cuda":
        return ALL_POSITIONS
    return POSITIONS if split == ONE_RANK and kv_dtype is None else POSITIONS[::5]


def rows_of(engine, tokens, position: int, num_rows: int) -> np.ndarray:
    state, _ = engine.prefill(tokens[:position])
    logits = engine.decode_tokens(state, tokens[position : position + num_rows])
    state.close()
    return logits


def one_by_one(engine, tokens, position: int) -> np.ndarray:
    state, _ = engine.prefill(tokens[:position])
    logits = [engine.decode_step(state, token) for token in tokens[position:]]
    state.close()
    return np.stack(logits)


def expect_rows_of_one_by_one(engine, position: int, vocab: int, counts) -> None:
    """Rows of a sequence from a position on, in KV blocks that held other tokens before."""
    random_tokens = generator("draft rows", position)
    tokens = random_tokens.integers(0, vocab, position + MOST_ROWS).tolist()
    expected = one_by_one(engine, tokens, position)
    for num_rows in counts:
        stale = random_tokens.integers(0, vocab, len(tokens)).tolist()
        one_by_one(engine, stale, position)
        rows = rows_of(engine, tokens, position, num_rows)
        assert rows.tobytes() == expected[:num_rows].tobytes(), (position, num_rows)


@pytest.mark.parametrize(
    ("split", "kv_dtype"), PLACED, ids=lambda part: getattr(part, "label", None)
)
def test_rows_at_every_place_of_a_page_and_of_a_split(split, kv_dtype):
    positions = places_of(split, kv_dtype)
    options = {"max_seq": 288, "max_draft_tokens": MOST_ROWS - 1, "kv_dtype": kv_dtype}
    with open_engine(CAPITALS, split, **options) as engine:
        for position in positions:
            expect_rows_of_one_by_one(engine, position, VOCAB, (1, 2, MOST_ROWS))


def subjects() -> list[Request]:
    tokens = generator("drafted requests").integers(0, VOCAB, 300).tolist()
    drawn = Sampling(temperature=0.9, top_p=0.95, seed=11, num_logprobs=3)
    penalised = replace(drawn, repetition_penalty=1.2, frequency_penalty=0.3)
    wide = {"max_tokens": 40, "ignore_eos": True}
    return [
        Request(prompts()[0], sampling=Sampling(num_logprobs=2), **wide),
        Request(tokens[:235], sampling=drawn, **wide),
        Request(tokens[:33], sampling=drawn, biases={5: 4.0, 9: -3.0}, **wide),
        Request(tokens[:12], sampling=penalised, **wide),
        Request(tokens[:15], sampling=drawn, min_tokens=7, stop_tokens=list(range(900)), **wide),
        Request(tokens[:20], sampling=drawn, bad_words=[[3], [7, 8]], **wide),
        Request(tokens[:9], sampling=drawn, allowed_tokens=list(range(40)), **wide),
    ]


def results_of(engine, requests) -> list:
    return [
        (
            one.tokens,
            one.finish_reason,
            [(event.logprob, tuple(event.top_logprobs)) for event in one.events],
        )
        for one in run_requests(engine, requests)
    ]


def damaged(tokens, accuracy: float, draw: random.Random, vocab: int) -> list[int]:
    return [token if draw.random() < accuracy else draw.randrange(vocab) for token in tokens]


def replayed(requests, results, accuracy: float, seed: int, vocab: int = VOCAB) -> list[Request]:
    """The requests, each with its own answer as drafts, damaged."""
    draw = random.Random(seed)
    return [
        replace(request, draft_tokens=damaged(tokens, accuracy, draw, vocab))
        for request, (tokens, *_) in zip(requests, results, strict=True)
    ]


@pytest.mark.parametrize("course", COURSES, ids=str)
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_replayed_drafts_change_no_token_and_no_log_probability(split, course, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    options = {"max_seq": 512, "max_batch": 8, **course}
    with open_engine(CAPITALS, split, **options) as engine:
        expected = results_of(engine, subjects())
        num_steps = engine.info()["num_steps"]
    with open_engine(CAPITALS, split, max_draft_tokens=MOST_ROWS - 1, **options) as engine:
        for accuracy in ACCURACIES:
            drafted = replayed(subjects(), expected, accuracy, seed)
            assert results_of(engine, drafted) == expected, accuracy
        before, free = engine.info()["num_steps"], expected[:NUM_WITHOUT_RULES]
        drafted = replayed(subjects()[:NUM_WITHOUT_RULES], free, 1.0, seed)
        assert results_of(engine, drafted) == free
        assert 2 * (engine.info()["num_steps"] - before) < num_steps


@pytest.mark.parametrize("course", COURSES, ids=str)
def test_drafts_that_may_reach_min_tokens_change_no_token(course):
    drawn = Sampling(temperature=0.9, seed=11, num_logprobs=3)
    ends = {"max_tokens": 32, "stop_tokens": list(range(0, VOCAB, 3))}
    asked = [
        Request(prompts()[0], sampling=drawn, min_tokens=least, **ends)
        for least in (0, 1, 2, 3, 5, 8, 9, 13, 17, 30, 32)
    ]
    options = {"max_seq": 512, "max_batch": len(asked), **course}
    with open_engine(CAPITALS, **options) as engine:
        expected = results_of(engine, asked)
    assert all(
        len(one[0]) >= request.min_tokens for request, one in zip(asked, expected, strict=True)
    )
    assert min(len(one[0]) for one in expected) < 32
    for most in (1, MOST_ROWS - 1):
        with open_engine(CAPITALS, max_draft_tokens=most, **options) as engine:
            for accuracy in ACCURACIES:
                assert results_of(engine, replayed(asked, expected, accuracy, most)) == expected


def test_min_tokens_costs_no_step():
    """Requests that begin one step after the other draft in each step, also before they may end."""
    tokens = generator("late starts").integers(0, VOCAB, (4, 64)).tolist()
    free = [
        Request(prompt[: 16 * count], max_tokens=128, ignore_eos=True)
        for count, prompt in enumerate(tokens, 1)
    ]
    options = {"max_seq": 512, "max_batch": 4, "prefill_chunk": 16, "plan_ahead": True}
    with open_engine(CAPITALS, **options) as engine:
        expected = results_of(engine, free)
    with open_engine(CAPITALS, max_draft_tokens=1, **options) as engine:
        num_steps = []
        for least in (0, 128):
            before = engine.info()["num_steps"]
            asked = [replace(request, min_tokens=least) for request in free]
            assert results_of(engine, replayed(asked, expected, 1.0, 0)) == expected
            num_steps.append(engine.info()["num_steps"] - before)
    assert num_steps[1] <= num_steps[0] + 8, num_steps


def random_subjects(vocab: int) -> list[Request]:
    """Short and long prompts: their answers cross the borders of pages and of a split."""
    tokens = generator("drafted requests", vocab).integers(0, vocab, 250).tolist()
    drawn = Sampling(temperature=1.1, top_p=0.9, seed=5, num_logprobs=3)
    penalised = replace(drawn, presence_penalty=0.4, frequency_penalty=0.3)
    wide = {"max_tokens": 24, "ignore_eos": True}
    return [
        Request(tokens[:11], sampling=Sampling(num_logprobs=2), **wide),
        Request(tokens[:243], sampling=drawn, **wide),
        Request(tokens[:30], sampling=penalised, biases={5: 2.0}, **wide),
    ]


@pytest.mark.parametrize(
    ("name", "split"), RANDOM_MODELS, ids=lambda value: getattr(value, "label", value)
)
def test_random_models(name, split, random_model, record_property):
    seed, vocab = random.randrange(2**32), CONFIGS[name]["vocab_size"]
    record_property("seed", seed)
    options = {"max_seq": 288, "max_batch": 4}
    with open_engine(random_model(name), split, **options) as engine:
        expected = results_of(engine, random_subjects(vocab))
    with open_engine(
        random_model(name), split, max_draft_tokens=MOST_ROWS - 1, **options
    ) as engine:
        for position in BORDERS:
            expect_rows_of_one_by_one(engine, position, vocab, (MOST_ROWS - 1, MOST_ROWS))
        num_steps = []
        for accuracy in ACCURACIES:
            before = engine.info()["num_steps"]
            drafted = replayed(random_subjects(vocab), expected, accuracy, seed, vocab)
            assert results_of(engine, drafted) == expected, accuracy
            num_steps.append(engine.info()["num_steps"] - before)
        assert num_steps[-1] < num_steps[0]


@pytest.mark.parametrize("count", [0, MOST_ROWS + 1])
def test_more_rows_than_a_sequence_has_are_refused(count):
    expected = rf"num_tokens is {count}; expected 1 to {MOST_ROWS} \(max_draft_tokens \+ 1\)"
    with open_engine(CAPITALS, max_draft_tokens=MOST_ROWS - 1) as engine:
        state, _ = engine.prefill([1, 2, 3])
        with pytest.raises(EngineError, match=expected):
            engine.decode_tokens(state, [5] * count)
        assert engine.decode_tokens(state, [5, 6]).shape == (2, VOCAB)
        state.close()
