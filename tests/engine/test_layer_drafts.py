"""Draft tokens of the prediction layer change no text, log-probability or logit, and come true."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling
from tests.engine.masking import random_masks, run_masked
from tests.engine.running import Finished, open_engine, run_requests
from tests.engine.test_draft_rows import (
    COURSES,
    RANDOM_MODELS,
    SPLITS,
    VOCAB,
    random_subjects,
    results_of,
    subjects,
)
from tests.engine.test_drafts_in_crowds import COURSES as CROWD_COURSES
from tests.engine.test_drafts_in_crowds import (
    crowd_of,
    differing,
    facts_of,
    opened,
    requests_of,
    run_alone,
    run_spread,
)
from tests.reference.capitals import CAPITALS, countries, prompts, tokenizer
from tests.reference.configs import CONFIGS
from tests.reference.models import write_prediction_model

SPECULATE = {
    "mtp": {"speculate": "mtp", "max_draft_tokens": 1},
    "auto": {"speculate": "auto", "max_draft_tokens": 3},
}
KINDS = pytest.mark.parametrize("kind", SPECULATE)
EACH_COURSE = pytest.mark.parametrize("course", COURSES, ids=str)
CROWD_KINDS = (("mtp",), ("auto",), ("mtp", "auto"), ("mtp",), ("auto",))
CROWDS = [
    (kind, *course)
    for course, kinds in zip(CROWD_COURSES, CROWD_KINDS, strict=True)
    for kind in kinds
]
ROOM = {"max_seq": 512, "max_batch": 8}
NUM_LOGITS = 24
NUM_ASKED = 24
GOAL = 0.80

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def prediction_model(tmp_path_factory) -> Callable[[str, bool], Path]:
    """A random model with a prediction layer, with a vocabulary of its own or the model's."""
    directory = tmp_path_factory.mktemp("prediction_models")
    return cache(lambda name, is_own: write_prediction_model(name, directory, is_own))


def with_logits(requests: Sequence[Request], vocab: int) -> list[Request]:
    return [
        replace(one, logits=np.zeros((NUM_LOGITS, vocab), np.float32), logits_capacity=NUM_LOGITS)
        for one in requests
    ]


def logits_of(engine: Engine, requests: Sequence[Request], vocab: int) -> list[bytes]:
    asked = with_logits(requests, vocab)
    run_requests(engine, asked)
    return [one.logits.tobytes() for one in asked]


@KINDS
@EACH_COURSE
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_the_layer_changes_no_token_log_probability_or_logit(split, course, kind):
    options = {**ROOM, **course}
    with open_engine(CAPITALS, split, **options) as engine:
        expected = results_of(engine, subjects())
        logits = logits_of(engine, subjects(), VOCAB)
    with open_engine(CAPITALS, split, **SPECULATE[kind], **options) as engine:
        assert results_of(engine, subjects()) == expected
        assert logits_of(engine, subjects(), VOCAB) == logits
        info = engine.info()
    assert info["num_prediction_layers"] == 1
    assert 0 < info["num_accepted_tokens"] < info["num_draft_tokens"]


@KINDS
@pytest.mark.parametrize("has_own_vocabulary", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize(
    ("name", "split"), RANDOM_MODELS, ids=lambda value: getattr(value, "label", value)
)
def test_random_models(name, split, has_own_vocabulary, kind, prediction_model):
    vocab, directory = CONFIGS[name]["vocab_size"], prediction_model(name, has_own_vocabulary)
    options = {"max_seq": 288, "max_batch": 4}
    with open_engine(directory, split, **options) as engine:
        expected = results_of(engine, random_subjects(vocab))
        logits = logits_of(engine, random_subjects(vocab), vocab)
    chunked = {**SPECULATE[kind], "prefill_chunk": 48}
    with open_engine(directory, split, **chunked, **options) as engine:
        assert results_of(engine, random_subjects(vocab)) == expected
        assert logits_of(engine, random_subjects(vocab), vocab) == logits
        assert engine.info()["num_draft_tokens"] > 0


@pytest.mark.parametrize(("kind", "split", "most", "prefill_chunk"), CROWDS, ids=str)
def test_crowds(kind, split, most, prefill_chunk, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    crowd = crowd_of(split)
    requests = requests_of(crowd, seed)
    with opened(crowd, split) as engine:
        expected = facts_of(run_requests(engine, requests))
    options = {**SPECULATE[kind], "prefill_chunk": prefill_chunk}
    options["max_draft_tokens"] = most if kind == "auto" else 1
    with opened(crowd, split, **options) as engine:
        assert differing(facts_of(run_requests(engine, requests)), expected) == []
        info = engine.info()
        assert 0 < info["num_accepted_tokens"] < info["num_draft_tokens"]
        assert differing(facts_of(run_spread(engine, requests, seed)), expected) == []
        assert engine.info()["num_preemptions"] > 0
        assert differing(run_alone(engine, requests), expected) == []
        assert engine.info()["num_cached_tokens"] > info["num_cached_tokens"]


@KINDS
@EACH_COURSE
def test_masked_requests(course, kind):
    masks = [random_masks(key) if key % 3 else None for key in range(8)]
    sampled = Sampling(temperature=0.8, seed=3, num_logprobs=2)
    requests = [
        Request(prompt, max_tokens=24, sampling=sampled, ignore_eos=True)
        for prompt in prompts()[: len(masks)]
    ]
    with open_engine(CAPITALS, **ROOM, **course) as engine:
        expected = facts_of(run_masked(engine, requests, masks))
    with open_engine(CAPITALS, **SPECULATE[kind], **ROOM, **course) as engine:
        finished = run_masked(engine, requests, masks)
        assert engine.info()["num_accepted_tokens"] > 0
    assert facts_of(finished) == expected
    assert any(offers_of(one) for one, mask in zip(finished, masks, strict=True) if mask)


def offers_of(one: Finished) -> list[int]:
    return [token for event in one.events for token in event.drafts]


def questions(temperature: float) -> list[Request]:
    """Facts to answer, each behind others that are answered."""
    encode, entries, requests = tokenizer(), countries(), []
    for number in range(NUM_ASKED):
        chosen = entries[number :: len(entries) // 4][:4]
        lines = [f"Q: What is the capital of {e['country']}?\nA: {e['capital']}.\n" for e in chosen]
        prompt = encode.encode("".join(lines)).ids
        sampling = Sampling(temperature=temperature, seed=number)
        requests.append(Request(prompt, max_tokens=48, sampling=sampling, ignore_eos=True))
    return requests


def acceptance_of(engine: Engine, requests: Sequence[Request]) -> tuple[list, float]:
    """The tokens of the answers, and the share of the layer's drafts that were right."""
    before = engine.info()
    tokens = [one.tokens for one in run_requests(engine, requests)]
    after = engine.info()
    tried, accepted = (
        after[name] - before[name] for name in ("num_draft_tokens", "num_accepted_tokens")
    )
    return tokens, accepted / tried


@EACH_COURSE
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_of_facts_come_true_with_a_cold_and_a_warm_prefix_cache(
    temperature, course, record_property
):
    asked = questions(temperature)
    with open_engine(CAPITALS, **ROOM, **course) as engine:
        expected = [one.tokens for one in run_requests(engine, asked)]
    with open_engine(CAPITALS, **SPECULATE["mtp"], **ROOM, **course) as engine:
        cold, cold_share = acceptance_of(engine, asked)
        warm, warm_share = acceptance_of(engine, asked)
        assert engine.info()["num_cached_tokens"] > 0
    print(f"temperature {temperature}: accepted cold {cold_share:.3f}, warm {warm_share:.3f}")
    record_property("accepted_cold", cold_share)
    record_property("accepted_warm", warm_share)
    assert cold == warm == expected
    assert min(cold_share, warm_share) >= GOAL
