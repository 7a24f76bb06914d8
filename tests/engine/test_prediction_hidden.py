"""The prediction layer of capitals against the oracle on the engine's own hidden states.

From tokens, the layer passes on what codes that flip do to the model's hidden states: 0.02. The
head has more rows than columns, so the model's logits give the hidden states back, and the layer
alone is compared.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Engine
from tests.devices import is_rounded
from tests.engine.running import open_engine
from tests.engine.test_prediction_logits import WHOLE, Drafted, oracle, run_drafted
from tests.reference import compare
from tests.reference.capitals import CAPITALS, capital_texts
from tests.reference.cases import CAPITALS_NAME, world_sizes
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout, Trace
from tests.reference.prediction import PredictionModel
from tests.reference.variants import PredictionVariant

LIMIT = compare.Kind.RANDOM_W8A8_FLOAT32.value
NUM_TEXTS = 8
SPLITS = [
    Split(world_size, layout)
    for world_size in world_sizes(CAPITALS_NAME)
    for layout in ExpertLayout
    if world_size > 1 or layout is ONE_RANK.expert_layout
]

pytestmark = pytest.mark.skipif(is_rounded(), reason="the limit is that of float32")


def hidden_states(engine: Engine, text: list[int], head: np.ndarray) -> np.ndarray:
    """The states whose logits the engine gives: a row's bits are those of any other batch."""
    state, logits = engine.prefill(text, all_positions=True)
    state.close()
    return np.linalg.lstsq(head.astype(np.float64), logits.astype(np.float64).T)[0].T


def measured(split: Split, models: Iterable[PredictionModel]) -> list[compare.Measured]:
    """How far the engine's drafts are from each oracle's."""
    first, *others = models
    prompts = [text for text in capital_texts() if len(text) < 64][-NUM_TEXTS:]
    with open_engine(CAPITALS, split, speculate="mtp", **WHOLE) as engine:
        found = run_drafted(engine, prompts)
        hidden = [hidden_states(engine, drafts.text, first.layer.head) for drafts in found]
    pairs = list(zip(found, hidden, strict=True))
    rows = [drafts.rows for drafts in found]
    return [
        compare.measure(rows, [rows_after(model, *pair) for pair in pairs])
        for model in (first, *others)
    ]


def rows_after(model: PredictionModel, drafts: Drafted, hidden: np.ndarray) -> np.ndarray:
    return model.logits_after(drafts.text, Trace({"final.norm": hidden}))[drafts.positions]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_the_layer_alone_is_the_oracles(split):
    (right,) = measured(split, [oracle(CAPITALS, split)])
    assert not right.failures(LIMIT), right


def test_the_nearest_mistakes_exceed_the_limit():
    model = oracle(CAPITALS)
    mistakes = (
        PredictionVariant.NORMS_SWAPPED,
        PredictionVariant.SLOT_ZERO_ATTENDED,
        PredictionVariant.QUERY_ONE_POSITION_ON,
    )
    for wrong in measured(ONE_RANK, [replace(model, variant=mistake) for mistake in mistakes]):
        assert wrong.failures(LIMIT), wrong
