import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16, encode_bf16
from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, BackendError, Matrix
from tests import shapes
from tests.native import calls
from tests.reference.compare import relative_l2


def input_rows(device, num_tokens, width, dtype):
    """(what `linear` takes, its exact float64 values)."""
    rng = shapes.generator("input", num_tokens, width)
    values = op.as_activation(device, rng.standard_normal((num_tokens, width)))
    if dtype != FP8:
        return values, values.astype(np.float64)
    quantised = op.quantise(device, values)
    return quantised, calls.values_of(quantised)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("shape", shapes.products(), ids=shapes.shape_name)
def test_product_with_bias(device, shape, dtype):
    num_tokens, width, num_rows = shape
    rng = shapes.generator("weight", *shape)
    bias = rng.standard_normal(num_rows).astype(np.float32)
    placed, weight = calls.matrix(device, rng.standard_normal((num_rows, width)), dtype, bias)
    given, exact = input_rows(device, num_tokens, width, dtype)
    expected = exact @ weight.T + bias
    actual = op.linear(device, placed, given)
    assert relative_l2(actual, expected) <= calls.tolerance(device)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
def test_product_without_bias_and_rows_placed_in_pieces(device, dtype):
    rng = shapes.generator("pieces")
    array, scale, weight = calls.stored(rng.standard_normal((70, 33)), dtype)
    placed = Matrix(device, array, dtype, scale=scale)
    whole = device.download(placed.struct.data, (device.matrix_bytes(placed.struct),), np.uint8)
    pieces = Matrix(device, array[::-1], dtype, scale=scale)
    wide = np.zeros((70, 40), array.dtype)
    wide[:, :33] = array
    for begin, count in ((69, 1), (0, 13), (13, 56)):
        device.run(
            "place_rows",
            matrix=pieces.pointer,
            row_begin=begin,
            num_rows=count,
            source=wide[begin:].ctypes.data,
            source_row_stride=40,
            scale_source=None if scale is None else scale[begin:].ctypes.data,
        )
    in_pieces = device.download(pieces.struct.data, whole.shape, np.uint8)
    np.testing.assert_array_equal(in_pieces, whole)
    given, exact = input_rows(device, 3, 33, dtype)
    assert relative_l2(op.linear(device, pieces, given), exact @ weight.T) <= calls.tolerance(
        device
    )


def test_scales_and_biases_from_bf16(device):
    rng = shapes.generator("bf16 scales")
    codes, scale, _ = calls.stored(rng.standard_normal((5, 7)), FP8)
    placed = Matrix(device, codes, FP8, scale=scale, bias=np.zeros(5))
    scale_bits, bias_bits = (encode_bf16(rng.uniform(0.5, 2, 5)) for _ in range(2))
    device.run(
        "place_rows",
        matrix=placed.pointer,
        row_begin=0,
        num_rows=5,
        source=codes.ctypes.data,
        source_row_stride=7,
        scale_source=scale_bits.ctypes.data,
        scale_dtype=BF16,
        bias_source=bias_bits.ctypes.data,
        bias_dtype=BF16,
    )
    for block, bits in ((placed.struct.row_scale, scale_bits), (placed.struct.bias, bias_bits)):
        np.testing.assert_array_equal(device.download(block, (5,), "f4"), decode_bf16(bits))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("num_tokens", shapes.counts())
@pytest.mark.parametrize("id_stride", [1, 2, 3, 8])
def test_embed_copies_rows(device, id_stride, num_tokens, dtype):
    rng = shapes.generator("embed", num_tokens)
    placed, exact = calls.table(device, rng.standard_normal((29, 13)), dtype)
    ids = rng.integers(0, 29, num_tokens)
    np.testing.assert_array_equal(
        op.embed(device, placed, ids, id_stride),
        op.as_activation(device, exact)[ids[::id_stride]],
    )


def test_ids_that_are_not_apart_are_refused(device):
    placed, _ = calls.table(device, np.zeros((5, 3)), F32)
    with pytest.raises(BackendError, match="id_stride: expected 1 to 2147483647, got 0"):
        op.embed(device, placed, [0], id_stride=0)


@pytest.mark.parametrize("dtype", calls.PLAIN_WEIGHTS.values(), ids=calls.PLAIN_WEIGHTS)
@pytest.mark.parametrize("index", [[], [0], [4, 4, 0, 12], [12]])
def test_logits_of_chosen_rows(device, index, dtype):
    rng = shapes.generator("logits", len(index))
    placed, weight = calls.matrix(device, rng.standard_normal((131, 48)), dtype)
    values = op.as_activation(device, rng.standard_normal((13, 48)))
    expected = values[index].astype(np.float64) @ weight.T
    actual = op.logits(device, placed, values, index)
    assert actual.shape == (len(index), 131)
    if index:
        assert relative_l2(actual, expected) <= 1e-5
    np.testing.assert_array_equal(op.logits(device, placed, values[index], None), actual)
