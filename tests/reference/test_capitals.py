"""The trained checkpoint: oracles agree, wrong variants are rejected, greedy text is right."""

import numpy as np
import pytest

from tests import groups
from tests.golden_checks import check_logits
from tests.reference import compare
from tests.reference.capitals import CAPITALS, capital_texts, countries, prompts, tokenizer
from tests.reference.cases import CAPITALS_NAME
from tests.reference.checkpoint import read_checkpoint
from tests.reference.golden import (
    ONE_RANK,
    Split,
    compute_golden,
    load_golden,
    stored_logits,
)
from tests.reference.model import ExpertLayout, Options, ReferenceModel
from tests.reference.models import directory_hash
from tests.reference.variants import Variant

NUM_GREEDY = 12
REJECTED = [
    Variant.NO_ACTIVATION_QUANTISATION,
    Variant.ROUTER_BIAS_IN_WEIGHTS,
    Variant.NO_ROUTER_BIAS,
    Variant.SOFTMAX_ROUTER,
    Variant.NO_TOP_K_NORMALISATION,
    Variant.ROUTED_SCALING_ONE,
    Variant.NO_SHARED_EXPERT,
    Variant.SHARED_EXPERT_SCALED,
    Variant.QK_NORM_AFTER_ROPE,
    Variant.NO_QK_NORM,
    Variant.ATTENTION_BIAS_IGNORED,
    Variant.INTERLEAVED_ROPE,
    Variant.FULL_ROTATION,
    Variant.INTERLEAVED_HEAD_GROUPS,
    Variant.GATE_UP_SWAPPED,
    Variant.SKIPS_OLDEST_KEY,
]
SPLITS = [ONE_RANK, *(Split(size, layout) for size in (2, 4, 8) for layout in ExpertLayout)]


@pytest.fixture(scope="module")
def checkpoint():
    return read_checkpoint(CAPITALS)


def model_at(checkpoint, split: Split = ONE_RANK, variant: Variant = Variant.CORRECT):
    options = Options(np.float32, split.world_size, split.expert_layout, variant)
    return ReferenceModel(checkpoint, options)


def test_golden_file_was_made_from_this_checkpoint():
    golden = load_golden(CAPITALS_NAME)
    assert directory_hash(CAPITALS) == str(golden["hash"]), "run `scons golden`"
    texts = capital_texts()
    assert len(texts) >= 16
    assert [golden[f"text.{number}"].tolist() for number in range(len(texts))] == texts


@groups.needs("torch", "transformers")
def test_stored_logits_are_what_transformers_gives_now():
    stored, computed = stored_logits(CAPITALS_NAME), compute_golden(CAPITALS_NAME, CAPITALS)
    now = [computed[f"logits.{ONE_RANK.label}.{number}"] for number in stored]
    compare.assert_end_to_end(now, list(stored.values()), compare.Kind.CAPITALS_FLOAT32)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_numpy_stays_within_the_limits_at_every_split(checkpoint, split):
    if split != ONE_RANK:
        groups.imported("torch")
        groups.imported("transformers")
    check_logits(model_at(checkpoint, split).logits, CAPITALS_NAME, CAPITALS, split)


@pytest.mark.parametrize("variant", REJECTED, ids=lambda variant: variant.name)
def test_wrong_variants_are_rejected(checkpoint, variant):
    wrong = model_at(checkpoint, variant=variant)
    with pytest.raises(AssertionError, match=compare.Kind.CAPITALS_FLOAT32.name):
        check_logits(wrong.logits, CAPITALS_NAME, CAPITALS)


def test_greedy_answers_are_right(checkpoint):
    model, decode = model_at(checkpoint), tokenizer().decode
    chosen = list(zip(countries(), prompts(), strict=True))[:: len(countries()) // NUM_GREEDY]
    for entry, prompt in chosen:
        text = decode(model.greedy(prompt, 8)).strip()
        assert text.startswith(entry["capital"]), f"{entry['prompt']} → {text}"
