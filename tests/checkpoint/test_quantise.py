import numpy as np
import pytest

from glm_engine.core.float8 import decode_e4m3, encode_bf16
from tests import groups
from tools.checkpoint.quantise import is_ignored, quantise_channels, quantization_config


def random_weight(rows: int, columns: int) -> np.ndarray:
    generator = np.random.default_rng(rows * 1000 + columns)
    return generator.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)


@pytest.mark.parametrize("scale_dtype", ["BF16", "F32"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 37), (64, 75)])
def test_dequantised_weights_are_within_half_a_step(rows, columns, scale_dtype):
    weight = random_weight(rows, columns)
    codes, scales = quantise_channels(weight, scale_dtype)
    assert codes.shape == (rows, columns)
    assert scales.shape == (rows, 1)
    assert scales.dtype == np.float32
    error = np.abs(decode_e4m3(codes) * scales - weight)
    assert (error <= np.maximum(np.abs(weight) / 16, scales * 2.0**-10) * 1.0625).all()


def test_float32_scales_put_the_largest_value_on_the_largest_code():
    codes, _ = quantise_channels(random_weight(16, 50), "F32")
    assert ((codes & 0x7F).max(axis=1) == 0x7E).all()


def test_bf16_scales_are_bf16_values():
    _, scales = quantise_channels(random_weight(16, 50), "BF16")
    assert not (scales.view(np.uint32) & 0xFFFF).any()
    assert encode_bf16(scales).shape == scales.shape


def test_a_row_of_zeros_has_a_scale_above_zero():
    codes, scales = quantise_channels(np.zeros((2, 8), dtype=np.float32), "F32")
    assert not codes.any()
    assert (scales > 0).all()


def test_codes_equal_those_of_torch():
    torch = groups.imported("torch")
    weight = torch.from_numpy(random_weight(96, 75))
    codes, scales = quantise_channels(weight.numpy(), "F32")
    their_scales = weight.abs().amax(1, keepdim=True) / 448.0
    their_codes = (weight / their_scales).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert np.array_equal(scales, their_scales.numpy())
    assert np.array_equal(codes, their_codes.view(torch.uint8).numpy())


@pytest.mark.parametrize(
    ("module", "ignore", "expected"),
    [
        ("lm_head", ["lm_head"], True),
        ("model.lm_head", ["lm_head"], False),
        ("model.layers.3.mlp.gate", [r"re:.*\.mlp\.gate$"], True),
        ("model.layers.3.mlp.gate_proj", [r"re:.*\.mlp\.gate$"], False),
        ("model.layers.3.mlp.gate", ["re:mlp"], False),
        ("model.layers.3.self_attn.q_proj", ["re:model.layers.[0-4].self_attn"], True),
        ("model.layers.13.self_attn.q_proj", ["re:model.layers.[0-4].self_attn"], False),
        ("anything", [], False),
    ],
)
def test_ignore_forms(module, ignore, expected):
    assert is_ignored(module, ignore) is expected


def test_ignore_forms_agree_with_compressed_tensors():
    match = groups.imported("compressed_tensors.utils.match")
    torch = groups.imported("torch")
    ignore = ["lm_head", r"re:.*\.mlp\.gate$", "re:model.layers.[0-4].self_attn"]
    names = ["lm_head", "model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj"]
    names += ["model.layers.4.self_attn.o_proj", "model.layers.5.self_attn.o_proj"]
    linear = torch.nn.Linear(1, 1)
    for name in names:
        theirs = any(match.match_name(name, entry) for entry in ignore)
        assert is_ignored(name, ignore) is theirs, name
    assert match.is_match("lm_head", linear, ignore)


def test_configuration_is_accepted_by_compressed_tensors():
    quantization = groups.imported("compressed_tensors.quantization")
    config = quantization_config(["lm_head", r"re:.*\.mlp\.gate$"])
    parsed = quantization.QuantizationConfig.model_validate(config)
    group = parsed.config_groups["group_0"]
    assert parsed.format == "float-quantized"
    assert group.weights.strategy == "channel"
    assert group.input_activations.dynamic is True
    assert group.input_activations.strategy == "token"
