import numpy as np
import pytest

from tests import groups
from tests.reference import fp8
from tests.reference.linear import bf16
from tests.shapes import generator, hostile_rows, matrices, seed_note, shape_name


def test_every_code_decodes_and_encodes_to_itself():
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(fp8.encode(fp8.decode(codes)), codes)


def test_known_values():
    known = {0x00: 0.0, 0x01: 2.0**-9, 0x07: 7 * 2.0**-9, 0x08: 2.0**-6, 0x38: 1.0, 0x7E: 448.0}
    for code, value in known.items():
        assert fp8.decode_code(code) == value
        assert fp8.decode_code(code | 0x80) == -value
    assert np.signbit(fp8.decode_code(0x80))
    assert np.isnan(fp8.decode_code(0x7F))
    assert np.isnan(fp8.decode_code(0xFF))


def test_ties_go_to_the_even_code_and_neighbours_to_the_nearest():
    for lower, midpoint in enumerate(fp8.MIDPOINTS):
        even = lower + lower % 2
        assert fp8.encode(midpoint) == even
        assert fp8.encode(np.nextafter(midpoint, 0)) == lower
        assert fp8.encode(np.nextafter(midpoint, np.inf)) == lower + 1
        assert fp8.encode(-midpoint) == even | 0x80


def test_beyond_the_largest_value_saturates():
    for value in (448.0, 449.0, 464.0, 1e9, np.inf):
        assert fp8.encode(value) == 0x7E
        assert fp8.encode(-value) == 0xFE


def test_zero_row_has_float32_epsilon_as_scale():
    codes, scales = fp8.quantise_per_token(np.zeros((2, 5), np.float32))
    assert not codes.any()
    assert (scales == np.float32(2.0**-23)).all()


def test_empty_rows_keep_their_shapes():
    codes, scales = fp8.quantise_per_token(np.zeros((0, 5), np.float32))
    assert codes.shape == (0, 5)
    assert scales.shape == (0, 1)


@pytest.mark.parametrize("shape", matrices(), ids=shape_name)
def test_quantiser_agrees_with_pytorch_bit_for_bit(shape):
    torch = groups.imported("torch")
    rows = hostile_rows(*shape, "quantise")
    codes, scales = fp8.quantise_per_token(rows)
    tensor = torch.from_numpy(rows)
    largest = tensor.abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest == 0, torch.finfo(torch.float32).eps, largest / 448.0)
    expected = (tensor / scale).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    assert np.array_equal(scales, scale.numpy()), seed_note()
    assert np.array_equal(codes, expected.numpy()), seed_note()


def test_quantiser_agrees_with_compressed_tensors_bit_for_bit():
    torch = groups.imported("torch")
    quantization = groups.imported("compressed_tensors.quantization")
    from compressed_tensors.quantization.lifecycle.forward import quantize
    from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp

    arguments = quantization.QuantizationArgs(
        num_bits=8, type="float", strategy="token", dynamic=True, symmetric=True
    )
    rows = hostile_rows(65, 128, "compressed")
    tensor = torch.from_numpy(rows)[None]
    scale, zero_point = compute_dynamic_scales_and_zp(tensor, arguments, torch.nn.Identity())
    expected = quantize(tensor, scale, zero_point, arguments, dtype=torch.float8_e4m3fn)
    codes, scales = fp8.quantise_per_token(rows)
    assert np.array_equal(scales, scale[0].numpy()), seed_note()
    assert np.array_equal(codes, expected[0].view(torch.uint8).numpy()), seed_note()


def test_encoding_agrees_with_pytorch_over_all_magnitudes():
    torch = groups.imported("torch")
    rng = generator("magnitudes")
    values = rng.standard_normal(200_000) * 2.0 ** rng.uniform(-14, 8, 200_000)
    values = np.clip(values, -448, 448).astype(np.float32)
    expected = torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(fp8.encode(values), expected), seed_note()


def coarse_rows() -> np.ndarray:
    return bf16(generator("coarse").standard_normal((400, 512)).astype(np.float32))


def test_wrong_quantisers_change_codes_of_coarse_rows():
    """Shares of changed codes on BF16 inputs: 5e-4 for the reciprocal, 1e-2 for a BF16 scale."""
    rows = coarse_rows()
    codes, _ = fp8.quantise_per_token(rows)
    scales = fp8.token_scales(rows)
    reciprocal = np.mean(fp8.encode(rows * (np.float32(1) / scales)) != codes)
    rounded = np.mean(fp8.encode(rows / bf16(scales)) != codes)
    largest = np.max(np.abs(rows), axis=-1, keepdims=True)
    multiplied = np.mean(fp8.encode(rows * (np.float32(448) / largest)) != codes)
    assert reciprocal > 1e-4, seed_note()
    assert multiplied > 1e-4, seed_note()
    assert rounded > 5e-3, seed_note()
