"""The prediction layer in numpy against transformers' modules; its wrong variants are rejected."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests import groups
from tests.reference import compare
from tests.reference.attention import causal_attention
from tests.reference.capitals import CAPITALS
from tests.reference.cases import CAPITALS_NAME, CASES, kind_of, texts_of, world_sizes
from tests.reference.checkpoint import read_checkpoint
from tests.reference.configs import CONFIGS, is_quantised
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout, Options, Trace
from tests.reference.models import write_prediction_model
from tests.reference.prediction import PredictionModel, read_prediction_model
from tests.reference.variants import PredictionVariant

NUMPY_LIMIT = 5e-6
PLAIN = [name for name in CONFIGS if not is_quantised(name)]
FP8 = [name for name in CASES if name not in PLAIN]
SPLITS = [
    (name, Split(world_size, layout))
    for name in FP8
    for world_size in world_sizes(name)
    for layout in ExpertLayout
    if layout is ONE_RANK.expert_layout or 1 < world_size == max(world_sizes(name))
]
WRONG = [variant for variant in PredictionVariant if variant is not PredictionVariant.CORRECT]
REJECTING = ["bf16_like_4_7", "bf16_like_air", "fp8_like_4_7", CAPITALS_NAME]

needs_pytorch = groups.needs("torch", "transformers")


@pytest.fixture(scope="module")
def directory_of(tmp_path_factory):
    """Name of a case → its checkpoint with a prediction layer."""
    directory = tmp_path_factory.mktemp("prediction")
    paths = {CAPITALS_NAME: CAPITALS}

    def path_of(name: str) -> Path:
        if name not in paths:
            paths[name] = write_prediction_model(name, directory)
        return paths[name]

    return path_of


def texts(name: str) -> list[list[int]]:
    return [text for text in texts_of(name) if len(text) > 1]


def kind_of_drafts(name: str) -> compare.Kind:
    """How near the layer's logits come from tokens: `capitals` passes on the model's flips."""
    return compare.Kind.CAPITALS_DRAFTS_FLOAT32 if name == CAPITALS_NAME else kind_of(name)


def numpy_model(path: Path, split: Split = ONE_RANK, dtype: type = np.float64) -> PredictionModel:
    options = Options(dtype, split.world_size, split.expert_layout)
    return read_prediction_model(read_checkpoint(path), options)


def oracle_results(path: Path, name: str, split: Split = ONE_RANK) -> list[Sequence[np.ndarray]]:
    """Hidden states and the layer's logits of each text, by transformers' modules."""
    from tests.reference.transformers_prediction import TransformersPrediction

    oracle = TransformersPrediction(path, split.world_size, split.expert_layout)
    return [oracle.hidden_and_logits(text) for text in texts(name)]


@needs_pytorch
@pytest.mark.parametrize("has_own_vocabulary", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("name", PLAIN)
def test_numpy_agrees_with_transformers_modules(name, has_own_vocabulary, tmp_path):
    path = write_prediction_model(name, tmp_path, has_own_vocabulary)
    expected = [logits for _, logits in oracle_results(path, name)]
    for dtype in (np.float32, np.float64):
        actual = numpy_model(path, dtype=dtype).batch_logits(texts(name))
        assert compare.measure(actual, expected).worst_row_l2 <= NUMPY_LIMIT


@needs_pytorch
@pytest.mark.parametrize(("name", "split"), SPLITS, ids=lambda part: getattr(part, "label", part))
def test_the_layer_agrees_at_every_split(name, split, directory_of):
    path = directory_of(name)
    results, model = oracle_results(path, name, split), numpy_model(path, split)
    actual = [
        model.logits_after(text, Trace({"final.norm": hidden.astype(np.float64)}))
        for text, (hidden, _) in zip(texts(name), results, strict=True)
    ]
    expected = [logits for _, logits in results]
    compare.assert_end_to_end(actual, expected, compare.Kind.RANDOM_W8A8_FLOAT32, name)
    if name == CAPITALS_NAME:
        whole = model.batch_logits(texts(name))
        compare.assert_end_to_end(whole, expected, kind_of_drafts(name), name)


@dataclass(frozen=True)
class Right:
    """The correct layer's logits, and the traces of the model that it read."""

    model: PredictionModel
    traces: list[Trace]
    logits: list[np.ndarray]


@pytest.fixture(scope="module")
def right_of(directory_of):
    kept: dict[str, Right] = {}

    def right(name: str) -> Right:
        if name not in kept:
            model, traces = numpy_model(directory_of(name)), [Trace() for _ in texts(name)]
            pairs = zip(texts(name), traces, strict=True)
            kept[name] = Right(model, traces, [model.logits(*pair) for pair in pairs])
        return kept[name]

    return right


@pytest.mark.parametrize("name", REJECTING)
@pytest.mark.parametrize("variant", WRONG, ids=lambda variant: variant.name)
def test_wrong_variants_are_rejected(name, variant, right_of):
    right = right_of(name)
    wrong = replace(right.model, variant=variant)
    pairs = zip(texts(name), right.traces, strict=True)
    actual = [wrong.logits_after(text, Trace(trace)) for text, trace in pairs]
    assert compare.measure(actual, right.logits).failures(kind_of_drafts(name).value)


@pytest.mark.parametrize("name", REJECTING)
def test_a_row_does_not_depend_on_later_tokens(name, right_of):
    right, text = right_of(name), texts(name)[-1]
    early = right.model.logits(text[: len(text) // 2])
    assert compare.worst_row_l2(early, right.logits[-1][: len(early)]) <= NUMPY_LIMIT


def test_a_shift_of_all_positions_changes_nothing(right_of):
    right = right_of("bf16_like_4_7")
    stages = right.traces[-1].layer(len(right.model.model.layers))
    query, key = stages["turned_query"], stages["turned_key"]
    turned = [right.model.turn_once_more(heads) for heads in (query, key)]
    assert not np.allclose(turned[1], key)
    shifted = causal_attention(*turned, stages["value"])
    assert compare.relative_l2(shifted.reshape(len(query), -1), stages["heads"]) <= 1e-12


def test_one_token_is_too_few(right_of):
    with pytest.raises(ValueError, match="2 tokens"):
        right_of("bf16_like_4_7").model.logits([5])
