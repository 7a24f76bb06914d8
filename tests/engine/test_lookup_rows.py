"""Lookup on engines with weights: the bits of engines without drafts, and its acceptance rate."""

from dataclasses import replace

import pytest

from glm_engine.core.engine import Engine, Request
from tests.engine.running import open_engine, run_requests
from tests.engine.test_draft_rows import COURSES, SPLITS, results_of, subjects
from tests.reference.capitals import CAPITALS, countries, prompts, tokenizer
from tests.shapes import generator

LOOKUP = {"speculate": "lookup", "max_seq": 512, "max_batch": 8}
NUM_ANSWERED = 5
NUM_SPLITS = 3
CONFIG = CAPITALS / "config.json"
FORCED_LENGTH = 1.84
FOUR_DEVIATIONS = {1: 0.06, 3: 0.15, 7: 0.2}
COUNTS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def questions_asked_again() -> list[Request]:
    """Prompts of questions with their answers, behind which one of the questions comes again."""
    encode, requests = tokenizer(), []
    entries = countries()
    for first in range(0, len(entries) - NUM_ANSWERED, NUM_ANSWERED * 5):
        chosen = entries[first : first + NUM_ANSWERED]
        asked = [f"Q: What is the capital of {entry['country']}?\nA:" for entry in chosen]
        pairs = zip(asked, chosen, strict=True)
        answered = "".join(f"{question} {entry['capital']}.\n" for question, entry in pairs)
        again = encode.encode(answered + asked[first % NUM_ANSWERED]).ids
        requests.append(Request(again, max_tokens=96, ignore_eos=True))
    return requests


def shares_of(engine: Engine, requests: list[Request]) -> tuple[list[list[int]], float]:
    """The output tokens of each request, and the share of the drafts that were right."""
    before = engine.info()
    tokens = [one.tokens for one in run_requests(engine, requests)]
    drafted, accepted = (engine.info()[name] - before[name] for name in COUNTS[1:])
    return tokens, accepted / drafted


def predicted(results) -> list[Request]:
    """The subjects, each with its own answer as its prediction."""
    return [
        replace(request, prediction_tokens=tokens)
        for request, (tokens, *_) in zip(subjects(), results, strict=True)
    ]


@pytest.mark.parametrize("course", COURSES, ids=str)
@pytest.mark.parametrize("split", SPLITS[:NUM_SPLITS], ids=lambda split: split.label)
def test_lookup_changes_no_token_and_no_log_probability(split, course):
    options = {**LOOKUP, **course}
    with open_engine(CAPITALS, split, max_seq=512, max_batch=8, **course) as engine:
        expected = results_of(engine, subjects())
    for most in (1, 3, 7):
        with open_engine(CAPITALS, split, max_draft_tokens=most, **options) as engine:
            assert results_of(engine, subjects()) == expected, most
            without = engine.info()
            assert without["num_accepted_tokens"] > 0
            assert results_of(engine, predicted(expected)) == expected, most
            info = engine.info()
            assert info["num_accepted_tokens"] > without["num_accepted_tokens"]
            assert sum(info["num_accepted_at"]) == info["num_accepted_tokens"]
            assert len(info["num_accepted_at"]) == most


@pytest.mark.parametrize("course", COURSES, ids=str)
def test_most_drafts_of_a_copying_task_are_right(course):
    with open_engine(CAPITALS, max_seq=512, **course) as engine:
        expected = [one.tokens for one in run_requests(engine, questions_asked_again())]
    for most in (1, 3, 7):
        with open_engine(CAPITALS, max_draft_tokens=most, **LOOKUP, **course) as engine:
            tokens, share = shares_of(engine, questions_asked_again())
        assert tokens == expected
        assert share >= 0.7


@pytest.mark.parametrize("course", COURSES, ids=str)
def test_a_right_prediction_is_accepted(course):
    asked = [Request(prompt, max_tokens=60, ignore_eos=True) for prompt in prompts()[:16]]
    with open_engine(CAPITALS, max_seq=512, **course) as engine:
        expected = [one.tokens for one in run_requests(engine, asked)]
    guessed = [
        replace(request, prediction_tokens=tokens)
        for request, tokens in zip(asked, expected, strict=True)
    ]
    for most in (1, 3, 7):
        with open_engine(CAPITALS, max_draft_tokens=most, **LOOKUP, **course) as engine:
            tokens, share = shares_of(engine, guessed)
            info = engine.info()
        assert tokens == expected
        assert share >= 0.95
        assert info["num_draft_tokens"] > most * (info["num_drafts"] - len(guessed))


@pytest.mark.parametrize("course", COURSES, ids=str)
@pytest.mark.parametrize("most", FOUR_DEVIATIONS)
def test_a_forced_length_holds_where_lookup_finds_little(most, course):
    prompts_of = generator("forced lookup").integers(3, 2048, (4, 20)).tolist()
    requests = [Request(prompt, max_tokens=300, ignore_eos=True) for prompt in prompts_of]
    forced = {"synthetic": True, "acceptance_length": FORCED_LENGTH, "max_draft_tokens": most}
    with open_engine(CONFIG, **LOOKUP, **forced, **course) as engine:
        run_requests(engine, requests)
        info = engine.info()
    length = 1 + info["num_accepted_tokens"] / info["num_drafts"]
    assert abs(length - FORCED_LENGTH) < FOUR_DEVIATIONS[most]
    assert info["num_draft_tokens"] > (most - 0.2) * info["num_drafts"]
