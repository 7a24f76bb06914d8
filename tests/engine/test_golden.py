"""The engine against the oracles: prefill and decode, every case and split."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request
from tests.devices import is_rounded
from tests.engine.running import open_engine, run_requests
from tests.golden_checks import check_logits, nearest_logits
from tests.reference.capitals import CAPITALS
from tests.reference.cases import (
    CAPITALS_NAME,
    CASES,
    case_is_quantised,
    kind_of,
    texts_of,
    world_sizes,
)
from tests.reference.compare import assert_end_to_end
from tests.reference.golden import Split
from tests.reference.model import ExpertLayout

pytestmark = pytest.mark.groups

MAX_LOGIT_ROWS = 256
PROMPT_TOKENS = 5
NUM_NEW_TOKENS = 6
SPLITS = [
    (name, Split(world_size, layout))
    for name in CASES
    for world_size in world_sizes(name)
    if world_size > 1
    for layout in ExpertLayout
]


@pytest.fixture(scope="module")
def checkpoint_of(random_model) -> Callable[[str], Path]:
    return lambda name: CAPITALS if name == CAPITALS_NAME else random_model(name)


def prefill_logits(engine: Engine, tokens: Sequence[int]) -> np.ndarray:
    """Logits at every position from one prefill."""
    state, logits = engine.prefill(tokens, all_positions=True)
    state.close()
    return logits


def decode_logits(engine: Engine, tokens: Sequence[int]) -> np.ndarray:
    """Logits at every position: a short prefill, then one decode step a token."""
    prompt, rest = tokens[:PROMPT_TOKENS], tokens[PROMPT_TOKENS:]
    state, logits = engine.prefill(prompt, all_positions=True)
    steps = [engine.decode_step(state, token) for token in rest]
    state.close()
    return np.concatenate([logits, *(step[None] for step in steps)])


@pytest.mark.parametrize("name", CASES)
def test_prefill_and_decode_give_the_oracles_logits(name, checkpoint_of):
    directory = checkpoint_of(name)
    with open_engine(directory, max_logit_rows=MAX_LOGIT_ROWS) as engine:
        check_logits(lambda tokens: prefill_logits(engine, tokens), name, directory)
        check_logits(lambda tokens: decode_logits(engine, tokens), name, directory)


@pytest.mark.parametrize(("name", "split"), SPLITS, ids=lambda part: getattr(part, "label", part))
def test_every_split_gives_the_oracles_logits(name, split, checkpoint_of):
    directory = checkpoint_of(name)
    with open_engine(directory, split, max_logit_rows=MAX_LOGIT_ROWS) as engine:
        check_logits(lambda tokens: prefill_logits(engine, tokens), name, directory, split)
        check_logits(lambda tokens: decode_logits(engine, tokens), name, directory, split)


@pytest.mark.parametrize(
    ("name", "split"),
    [pair for pair in SPLITS if not case_is_quantised(pair[0])],
    ids=lambda part: getattr(part, "label", part),
)
def test_unquantised_logits_do_not_depend_on_the_number_of_ranks(name, split, checkpoint_of):
    directory, texts = checkpoint_of(name), texts_of(name)
    with open_engine(directory, max_logit_rows=MAX_LOGIT_ROWS) as engine:
        alone = [prefill_logits(engine, text) for text in texts]
    with open_engine(directory, split, max_logit_rows=MAX_LOGIT_ROWS) as engine:
        shared = [prefill_logits(engine, text) for text in texts]
    assert_end_to_end(shared, alone, kind_of(name, is_rounded()), f"{name} at {split.label}")


@pytest.mark.parametrize("name", CASES)
def test_requests_in_flight_together_give_the_references_logits(name, checkpoint_of):
    directory, prompts = checkpoint_of(name), [text for text in texts_of(name) if len(text) < 64]
    options = {"page_size": 4, "prefill_chunk": 7, "max_batch": 8}
    with open_engine(directory, **options) as engine:
        logits = [np.zeros((NUM_NEW_TOKENS, engine.vocab_size), dtype=np.float32) for _ in prompts]
        requests = [
            Request(prompt, NUM_NEW_TOKENS, ignore_eos=True, logits=rows, logits_capacity=len(rows))
            for prompt, rows in zip(prompts, logits, strict=True)
        ]
        finished = run_requests(engine, requests)
    texts = [
        [*prompt, *result.tokens[:-1]] for prompt, result in zip(prompts, finished, strict=True)
    ]
    expected = nearest_logits(directory, texts, logits)
    assert_end_to_end(logits, expected, kind_of(name, is_rounded()), name)
