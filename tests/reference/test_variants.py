"""Each wrong variant is rejected, by the stages or by the end-to-end limits."""

import numpy as np
import pytest

from tests.reference import compare, fp8
from tests.reference.cases import random_texts, stored_positions
from tests.reference.checkpoint import read_checkpoint
from tests.reference.configs import CONFIGS
from tests.reference.golden import stage_layer, stored_logits, stored_stages
from tests.reference.linear import bf16, through_fp8
from tests.reference.model import Options, ReferenceModel
from tests.reference.stages import recompute_layer, stage_failures
from tests.reference.variants import Variant
from tests.shapes import generator, seed_note

END_TO_END = {
    Variant.ROUTER_BIAS_IN_WEIGHTS: "bf16_like_4_7",
    Variant.NO_ROUTER_BIAS: "bf16_like_4_7",
    Variant.SOFTMAX_ROUTER: "bf16_like_4_7",
    Variant.NO_TOP_K_NORMALISATION: "bf16_eight_ranks",
    Variant.ROUTED_SCALING_ONE: "bf16_odd_sizes_no_shared",
    Variant.NO_SHARED_EXPERT: "bf16_like_air",
    Variant.SHARED_EXPERT_SCALED: "bf16_eight_ranks",
    Variant.QK_NORM_AFTER_ROPE: "bf16_like_4_7",
    Variant.NO_QK_NORM: "bf16_eight_ranks",
    Variant.ATTENTION_BIAS_IGNORED: "bf16_like_air",
    Variant.INTERLEAVED_ROPE: "bf16_like_air",
    Variant.FULL_ROTATION: "bf16_like_air",
    Variant.INTERLEAVED_HEAD_GROUPS: "bf16_like_air",
    Variant.EPSILON_OUTSIDE_ROOT: "bf16_odd_sizes_no_shared",
    Variant.GATE_UP_SWAPPED: "bf16_odd_sizes_no_shared",
    Variant.SKIPS_OLDEST_KEY: "bf16_like_4_7",
}

END_TO_END_W8A8 = {
    Variant.NO_ACTIVATION_QUANTISATION: "fp8_like_4_7",
    Variant.BF16_ACTIVATION_SCALE: "fp8_eight_ranks",
    Variant.SOFTMAX_ROUTER: "fp8_eight_ranks",
    Variant.NO_TOP_K_NORMALISATION: "fp8_eight_ranks",
    Variant.ROUTED_SCALING_ONE: "fp8_eight_ranks",
    Variant.NO_SHARED_EXPERT: "fp8_odd_sizes",
    Variant.QK_NORM_AFTER_ROPE: "fp8_like_4_7",
    Variant.NO_QK_NORM: "fp8_odd_sizes",
    Variant.ATTENTION_BIAS_IGNORED: "fp8_mixed_two_shared",
    Variant.INTERLEAVED_ROPE: "fp8_like_4_7",
}

STAGES = {
    Variant.NO_ACTIVATION_QUANTISATION: ("fp8_like_4_7", {"query", "routed_output"}),
    Variant.BF16_ACTIVATION_SCALE: ("fp8_like_4_7", {"query", "routed_output"}),
    Variant.ROUTER_BIAS_IN_WEIGHTS: ("fp8_like_4_7", {"route_weights"}),
    Variant.NO_ROUTER_BIAS: ("bf16_like_4_7", {"route_experts"}),
    Variant.SOFTMAX_ROUTER: ("fp8_eight_ranks", {"route_experts"}),
    Variant.NO_TOP_K_NORMALISATION: ("fp8_like_4_7", {"route_weights"}),
    Variant.ROUTED_SCALING_ONE: ("fp8_like_4_7", {"route_weights"}),
    Variant.NO_SHARED_EXPERT: ("fp8_like_4_7", {"mlp_output"}),
    Variant.SHARED_EXPERT_SCALED: ("fp8_like_4_7", {"mlp_output"}),
    Variant.QK_NORM_AFTER_ROPE: ("fp8_like_4_7", {"heads"}),
    Variant.NO_QK_NORM: ("fp8_like_4_7", {"heads"}),
    Variant.ATTENTION_BIAS_IGNORED: ("bf16_like_air", {"query", "key", "value"}),
    Variant.INTERLEAVED_ROPE: ("bf16_like_air", {"heads"}),
    Variant.FULL_ROTATION: ("bf16_like_air", {"heads"}),
    Variant.INTERLEAVED_HEAD_GROUPS: ("bf16_like_air", {"heads"}),
    Variant.EPSILON_OUTSIDE_ROOT: ("bf16_odd_sizes_no_shared", {"attention_input", "mlp_input"}),
    Variant.GATE_UP_SWAPPED: ("bf16_like_4_7", {"routed_output", "shared_output"}),
    Variant.SKIPS_OLDEST_KEY: ("bf16_like_4_7", {"heads"}),
}


def wrong_model(path, variant: Variant) -> ReferenceModel:
    return ReferenceModel(read_checkpoint(path), Options(variant=variant))


def end_to_end_failures(name: str, path, variant: Variant, kind: compare.Kind) -> list[str]:
    model, texts, stored = wrong_model(path, variant), random_texts(name), stored_logits(name)
    actual = [model.logits(texts[key])[stored_positions(name, len(texts[key]))] for key in stored]
    return compare.measure(actual, list(stored.values())).failures(kind.value)


def test_every_variant_is_rejected_somewhere():
    by_quantiser = {Variant.RECIPROCAL_ACTIVATION_SCALE}
    rejected = END_TO_END.keys() | STAGES.keys() | by_quantiser | {Variant.CORRECT}
    assert rejected == set(Variant)


@pytest.mark.parametrize(("variant", "name"), END_TO_END.items(), ids=str)
def test_unquantised_end_to_end_rejects(variant, name, random_model):
    kind = compare.Kind.UNQUANTISED_FLOAT32
    assert end_to_end_failures(name, random_model(name), variant, kind)


@pytest.mark.parametrize(("variant", "name"), END_TO_END_W8A8.items(), ids=str)
def test_w8a8_end_to_end_rejects(variant, name, random_model):
    kind = compare.Kind.RANDOM_W8A8_FLOAT32
    assert end_to_end_failures(name, random_model(name), variant, kind)


@pytest.mark.parametrize(
    ("variant", "expectation"), STAGES.items(), ids=[one.name for one in STAGES]
)
def test_stages_reject(variant, expectation, random_model):
    name, rejecting = expectation
    given = stored_stages(name, "layer")
    computed = recompute_layer(wrong_model(random_model(name), variant), stage_layer(name), given)
    lines = stage_failures(computed, given, CONFIGS[name]["n_routed_experts"])
    assert {line.partition(":")[0] for line in lines} >= rejecting


@pytest.mark.parametrize(
    "variant", [Variant.RECIPROCAL_ACTIVATION_SCALE, Variant.BF16_ACTIVATION_SCALE]
)
def test_bit_exact_quantiser_rejects(variant):
    rows = bf16(generator("quantiser variants").standard_normal((200, 512)))
    right = fp8.dequantise(*fp8.quantise_per_token(rows))
    wrong = through_fp8(rows.astype(np.float64), variant)
    assert not np.array_equal(wrong, right), seed_note()


def test_routes_may_differ_within_the_margin_only():
    margins = np.array([1.1e-5, 0.9e-5])
    expected = np.array([[0, 1], [0, 1]])
    assert compare.route_differences(np.array([[1, 0], [0, 2]]), expected, margins) == []
    assert len(compare.route_differences(np.array([[0, 2], [0, 1]]), expected, margins)) == 1


def test_limits_reject_what_is_not_finite():
    wrong, right = np.full((2, 5), np.nan), np.ones((2, 5))
    for kind in compare.Kind:
        with np.errstate(invalid="ignore"):
            assert compare.measure([wrong], [right]).failures(kind.value)
