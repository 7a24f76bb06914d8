import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, FP8, GATE_UP, Matrix
from tests import shapes
from tests.native import calls
from tests.reference import fp8
from tests.reference.experts import swiglu


def assert_same_bits(actual: op.Quantised, values: np.ndarray) -> None:
    codes, scale = fp8.quantise_per_token(values)
    np.testing.assert_array_equal(actual.scale.view(np.uint32), scale[:, 0].view(np.uint32))
    np.testing.assert_array_equal(actual.codes, codes)


@pytest.mark.parametrize("shape", [*shapes.matrices(), *shapes.wide_rows()], ids=shapes.shape_name)
def test_codes_and_scales_are_the_oracles(device, shape):
    values = op.as_activation(device, shapes.hostile_rows(*shape))
    assert_same_bits(op.quantise(device, values), values)


def test_every_float_near_a_midpoint_rounds_to_even(device):
    middle = fp8.MIDPOINTS.astype(np.float32)
    near = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    values = np.concatenate([middle, *near, fp8.MAGNITUDES.astype(np.float32)])
    row = np.concatenate([values, -values, [448.0, -448.0]]).astype(np.float32)[None]
    assert_same_bits(
        op.quantise(device, op.as_activation(device, row)), op.as_activation(device, row)
    )


def test_rows_of_zeros_subnormals_and_non_finite_values(device):
    rows = np.array(
        [
            [0.0, -0.0, 0.0],
            [1e-45, -1e-45, 0.0],
            [1e-38, 3e-39, -1e-40],
            [np.nan, 1.0, -1.0],
            [np.inf, 1.0, -1.0],
            [3.38e38, -3.38e38, 1.0],
        ],
        dtype=np.float32,
    )
    with np.errstate(invalid="ignore"):
        given = op.as_activation(device, rows)
        actual = op.quantise(device, given)
        codes, scale = fp8.quantise_per_token(given)
    np.testing.assert_array_equal(np.isnan(actual.scale), np.isnan(scale[:, 0]))
    known = ~np.isnan(scale[:, 0])
    np.testing.assert_array_equal(actual.scale[known], scale[known, 0])
    np.testing.assert_array_equal(actual.codes & 0x7F, codes & 0x7F)
    finite = [0, 1, 2, 5]
    np.testing.assert_array_equal(actual.codes[finite], codes[finite])


def test_all_codes_decode_as_weights_and_as_activations(device):
    codes = np.arange(256, dtype=np.uint8)[:, None]
    one = np.full((1, 1), 0x38, dtype=np.uint8)
    unit = np.ones(1, np.float32)
    weights = Matrix(device, codes, FP8, scale=np.ones(256, np.float32))
    by_weight = op.linear(device, weights, op.Quantised(one, unit))[0]
    single = Matrix(device, one, FP8, scale=unit)
    by_row = op.linear(device, single, op.Quantised(codes, np.ones(256, np.float32)))[:, 0]
    np.testing.assert_array_equal(by_weight, fp8.ALL_VALUES.astype(np.float32))
    np.testing.assert_array_equal(by_row, fp8.ALL_VALUES.astype(np.float32))


@pytest.mark.parametrize("num_tokens", shapes.counts())
@pytest.mark.parametrize("width", [1, shapes.PRIME, shapes.TILE + 1, 192])
def test_swiglu(device, num_tokens, width):
    rng = shapes.generator("swiglu", num_tokens, width)
    both = rng.standard_normal((num_tokens, 2 * width)).astype(np.float32) * 4
    weight = np.eye(2 * width, dtype=np.float32)
    identity, _ = calls.matrix(device, weight, BF16, role=GATE_UP)
    both = op.as_activation(device, both)
    laid_out = op.linear(device, identity, both)
    plain, quantised = op.swiglu(device, laid_out)
    expected = swiglu(both[:, :width].astype(np.float64), both[:, width:].astype(np.float64))
    np.testing.assert_allclose(plain, expected, rtol=calls.tolerance(device), atol=1e-6)
    calls.assert_codes(device, quantised, plain, expected)
    only_plain, nothing = op.swiglu(device, laid_out, quantised=False)
    assert nothing is None
    np.testing.assert_array_equal(only_plain, plain)
