"""transformers' own loading of an FP8 checkpoint against the oracle's hooks."""

import pytest

from tests import groups
from tests.reference import compare
from tests.reference.cases import random_texts

pytestmark = groups.needs("torch", "transformers", "compressed_tensors")

NAMES = ["fp8_like_4_7", "fp8_eight_ranks", "fp8_mixed_two_shared"]


def load_with_compressed_tensors(directory):
    import torch
    from transformers import AutoModelForCausalLM, CompressedTensorsConfig

    return AutoModelForCausalLM.from_pretrained(
        directory,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        quantization_config=CompressedTensorsConfig(dequantize=False),
    ).eval()


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`")
@pytest.mark.parametrize("name", NAMES)
def test_compressed_tensors_quantises_linears_as_the_hooks_do_and_no_experts(name, random_model):
    from tests.reference.transformers_oracle import TransformersOracle

    texts = random_texts(name)
    oracle = TransformersOracle(random_model(name), quantise_experts=False)
    expected = oracle.batch_logits(texts)
    oracle.model = load_with_compressed_tensors(random_model(name))
    actual = oracle.batch_logits(texts)
    compare.assert_end_to_end(actual, expected, compare.Kind.RANDOM_W8A8_FLOAT32, name)
