"""Greedy answers on the trained checkpoint: right, and the same at every number of ranks."""

from functools import cache

import pytest

from glm_engine.core.engine import Request
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS, countries, prompts, tokenizer
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout

MAX_TOKENS = 12
WANTED_SHARE = 0.95
SPLITS = [Split(size, layout) for size in (2, 4, 8) for layout in ExpertLayout]


@cache
def answers(split: Split) -> list[str]:
    """The continuation of every country's prompt, all in flight at once."""
    requests = [Request(prompt=prompt, max_tokens=MAX_TOKENS) for prompt in prompts()]
    with open_engine(CAPITALS, split, max_batch=32, max_seq=64) as engine:
        finished = run_requests(engine, requests)
    decode = tokenizer().decode
    return [decode(result.tokens).strip() for result in finished]


def test_answers_are_right():
    pairs = list(zip(countries(), answers(ONE_RANK), strict=True))
    right = [entry for entry, text in pairs if text.startswith(entry["capital"])]
    assert len(right) >= WANTED_SHARE * len(pairs), f"{len(right)} of {len(pairs)} right"


def test_france():
    number = next(at for at, entry in enumerate(countries()) if entry["country"] == "France")
    assert answers(ONE_RANK)[number].startswith("Paris")


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_every_split_gives_the_same_text(split):
    assert answers(split) == answers(ONE_RANK)
