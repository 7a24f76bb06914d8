"""Encoding and decoding over whole number ranges."""

import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16
from glm_engine.verify import operations as op
from tests.reference import fp8

ROW = 256


def quantised_at_scale_one(device, values: np.ndarray) -> np.ndarray:
    """Codes of values within ±448; a 448 in each row makes its scale exactly 1."""
    rows = np.concatenate([values.reshape(-1, ROW), np.full((len(values) // ROW, 1), 448.0)], 1)
    quantised = op.quantise(device, rows.astype(np.float32))
    np.testing.assert_array_equal(quantised.scale, 1.0)
    np.testing.assert_array_equal(quantised.codes[:, -1], 0x7E)
    return quantised.codes[:, :-1].reshape(-1)


def test_every_bf16_value_within_range(device):
    values = decode_bf16(np.arange(1 << 16, dtype=np.uint16))
    values = np.where(np.abs(values) <= 448, values, np.float32(0))
    np.testing.assert_array_equal(quantised_at_scale_one(device, values), fp8.encode(values))


@pytest.mark.parametrize("exponent", range(-12, 9))
def test_dense_values_of_one_binade(device, exponent):
    if device.activation_type != np.float32:
        pytest.skip("this device keeps activations in BF16: --device-kind cpu runs it")
    steps = np.arange(ROW * 64, dtype=np.float64) / (ROW * 64)
    values = np.minimum((1 + steps) * 2.0**exponent, 448).astype(np.float32)
    for signed in (values, -values):
        np.testing.assert_array_equal(quantised_at_scale_one(device, signed), fp8.encode(signed))


def test_codes_survive_a_round_trip(device):
    values = np.tile(fp8.decode(np.arange(256, dtype=np.uint8)), 2)
    values = np.where(np.isnan(values), 0.0, values)
    codes = quantised_at_scale_one(device, values)
    np.testing.assert_array_equal(fp8.decode(codes), values)
    np.testing.assert_array_equal(codes & 0x80, fp8.encode(values) & 0x80)
