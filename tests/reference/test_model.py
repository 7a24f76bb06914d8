"""The numpy model against transformers, computed now where PyTorch is, stored elsewhere."""

import numpy as np
import pytest

from tests import groups
from tests.reference import compare
from tests.reference.cases import kind_of, random_texts, stored_positions, world_sizes
from tests.reference.checkpoint import read_checkpoint
from tests.reference.configs import CONFIGS, is_quantised
from tests.reference.golden import (
    ONE_RANK,
    Split,
    compute_golden,
    load_golden,
    oracle_logits,
    stage_layer,
    stored_logits,
    stored_splits,
    stored_stages,
)
from tests.reference.model import ExpertLayout, Options, ReferenceModel
from tests.reference.models import directory_hash
from tests.reference.stages import recompute_layer, stage_failures

NUMPY_LIMIT = 5e-6
SPLITS = [
    (name, Split(world_size, layout))
    for name in CONFIGS
    for world_size in world_sizes(name)
    for layout in ExpertLayout
    if is_quantised(name)
]

needs_pytorch = groups.needs("torch", "transformers")


def numpy_model(path, split: Split = ONE_RANK, dtype: type = np.float64) -> ReferenceModel:
    options = Options(dtype, split.world_size, split.expert_layout)
    return ReferenceModel(read_checkpoint(path), options)


def check_against_transformers(name: str, actual: list, expected: list) -> None:
    compare.assert_end_to_end(actual, expected, kind_of(name), name)
    if not is_quantised(name):
        assert compare.measure(actual, expected).worst_row_l2 <= NUMPY_LIMIT


@pytest.mark.parametrize("name", CONFIGS)
def test_checkpoint_is_the_one_the_golden_file_was_made_from(name, random_model):
    assert directory_hash(random_model(name)) == str(load_golden(name)["hash"])
    texts = random_texts(name)
    stored = [load_golden(name)[f"text.{number}"].tolist() for number in range(len(texts))]
    assert stored == texts


@pytest.mark.parametrize("name", CONFIGS)
def test_numpy_agrees_with_stored_logits(name, random_model):
    texts = random_texts(name)
    for split in stored_splits(name):
        model = numpy_model(random_model(name), split)
        stored = stored_logits(name, split)
        actual = [
            model.logits(texts[key])[stored_positions(name, len(texts[key]))] for key in stored
        ]
        check_against_transformers(name, actual, list(stored.values()))


@needs_pytorch
@pytest.mark.parametrize("name", CONFIGS)
def test_numpy_agrees_with_transformers(name, random_model):
    texts = random_texts(name)
    expected = oracle_logits(random_model(name), texts)
    check_against_transformers(name, numpy_model(random_model(name)).batch_logits(texts), expected)


@needs_pytorch
@pytest.mark.parametrize(("name", "split"), SPLITS, ids=lambda part: getattr(part, "label", part))
def test_numpy_agrees_with_transformers_at_every_split(name, split, random_model):
    texts = random_texts(name)
    expected = oracle_logits(random_model(name), texts, split)
    actual = numpy_model(random_model(name), split).batch_logits(texts)
    check_against_transformers(name, actual, expected)


def drift(name: str, key: str, computed: np.ndarray, stored: np.ndarray) -> float:
    """Relative L2. Margins are small differences of scores up to 1 and carry the rounding of the
    scores, which processors do differently: without quantisation, their greatest difference."""
    if key.endswith("route_margins") and not is_quantised(name):
        return float(np.abs(computed - stored).max())
    return compare.relative_l2(computed, stored)


@needs_pytorch
@pytest.mark.parametrize("name", CONFIGS)
def test_stored_results_are_what_transformers_gives_now(name, random_model):
    stored, computed = load_golden(name), compute_golden(name, random_model(name))
    assert stored.keys() == computed.keys()
    limit = 0.01 if is_quantised(name) else NUMPY_LIMIT
    for key in (key for key in stored if stored[key].dtype.kind == "f"):
        error = drift(name, key, computed[key], stored[key])
        assert error <= limit, f"{name} {key}: {error:.3g} above {limit:.3g}"


@needs_pytorch
@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_decodes_what_it_prefills(name, random_model):
    from tests.reference.transformers_oracle import TransformersOracle

    oracle, text = TransformersOracle(random_model(name)), random_texts(name)[1]
    decoded, whole = oracle.decode_logits(text, 5), oracle.logits(text)
    compare.assert_end_to_end([decoded], [whole], kind_of(name), name)


@needs_pytorch
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_text_is_that_of_transformers(name, random_model):
    from tests.reference.transformers_oracle import TransformersOracle

    prompt = random_texts(name)[1]
    expected = TransformersOracle(random_model(name)).greedy(prompt, 4)
    assert numpy_model(random_model(name)).greedy(prompt, 4) == expected


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_stage_agrees_with_the_oracle(name, dtype, random_model):
    model = numpy_model(random_model(name), dtype=dtype)
    given = stored_stages(name, "layer")
    computed = recompute_layer(model, stage_layer(name), given)
    assert stage_failures(computed, given, CONFIGS[name]["n_routed_experts"]) == []


@pytest.mark.parametrize("name", CONFIGS)
def test_final_norm_and_head_agree_with_the_oracle(name, random_model):
    model, given = numpy_model(random_model(name)), stored_stages(name, "final")
    normalised = model.norm(given["input"].astype(np.float64), model.final_norm)
    compare.assert_stage(normalised, given["norm"], where=f"{name} final norm")
    compare.assert_stage(given["norm"] @ model.head.T, given["logits"], where=f"{name} head")


@pytest.mark.parametrize("name", CONFIGS)
def test_float32_stays_within_the_limits_of_float64(name, random_model):
    texts = random_texts(name)
    exact = numpy_model(random_model(name)).batch_logits(texts)
    single = numpy_model(random_model(name), dtype=np.float32).batch_logits(texts)
    compare.assert_end_to_end(single, exact, kind_of(name), name)


@pytest.mark.parametrize("name", [name for name in CONFIGS if not is_quantised(name)])
def test_world_size_does_not_matter_without_quantisation(name, random_model):
    texts = random_texts(name)
    alone = numpy_model(random_model(name)).batch_logits(texts)
    for world_size in world_sizes(name):
        split = Split(world_size, ExpertLayout.TENSOR_PARALLEL)
        shared = numpy_model(random_model(name), split).batch_logits(texts)
        assert all(np.array_equal(*pair) for pair in zip(shared, alone, strict=True))
