"""The exponential, seen through silu: x / (1 + e^-x)."""

import numpy as np
import pytest

from glm_engine.verify import operations as op

UNITS_IN_THE_LAST_PLACE = 6


def silu(device, values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, np.float32)[None]
    both = np.concatenate([values, np.ones_like(values)], axis=1)
    return op.swiglu(device, both, quantised=False)[0][0]


@pytest.fixture
def float32_device(device):
    if device.activation_type != np.float32:
        pytest.skip("this device keeps activations in BF16: --device-kind cpu runs it")
    return device


@pytest.mark.parametrize("bounds", [(-80, 80), (-1, 1), (-1e-3, 1e-3), (-20, 0)])
def test_within_a_few_units_of_float64(float32_device, bounds):
    values = np.linspace(*bounds, 20001).astype(np.float32)
    exact = values.astype(np.float64)
    exact = exact / (1 + np.exp(-exact))
    error = np.abs(silu(float32_device, values) - exact)
    assert np.max(error / np.spacing(np.abs(exact).astype(np.float32))) <= UNITS_IN_THE_LAST_PLACE


def test_far_arguments(float32_device):
    values = [-np.inf, -1e30, -200, -104, 104, 200, 1e30, np.inf]
    with np.errstate(invalid="ignore"):
        actual = silu(float32_device, values)
    np.testing.assert_array_equal(actual[1:4], [-0.0, -0.0, -0.0])
    np.testing.assert_array_equal(actual[4:], np.float32([104, 200, 1e30, np.inf]))
    assert np.isnan(silu(float32_device, [np.nan])[0])
