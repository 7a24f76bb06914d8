import numpy as np
import pytest

from glm_engine.verify import operations as op
from tests import shapes
from tests.native import calls
from tests.reference.compare import relative_l2
from tests.reference.norm import add_norm

EPSILON = 1e-5


def inputs(device, shape):
    rng = shapes.generator("norm", *shape)
    residual = op.as_activation(device, shapes.hostile_rows(*shape, "residual"))
    delta = op.as_activation(device, rng.standard_normal(shape))
    weight = (1 + 0.1 * rng.standard_normal(shape[1])).astype(np.float32)
    return residual, delta, weight


@pytest.mark.parametrize("shape", [*shapes.matrices(), *shapes.wide_rows()], ids=shapes.shape_name)
def test_residual_norm_and_codes(device, shape):
    residual, delta, weight = inputs(device, shape)
    total, plain, quantised = op.add_norm(device, residual, delta, weight, EPSILON)
    np.testing.assert_array_equal(total, op.as_activation(device, residual + delta))
    exact = add_norm(*(x.astype(np.float64) for x in (residual, delta, weight)), EPSILON)[1]
    assert relative_l2(plain, exact) <= calls.tolerance(device)
    of_total = add_norm(total.astype(np.float64), 0, weight.astype(np.float64), EPSILON)[1]
    calls.assert_codes(device, quantised, plain, of_total)


@pytest.mark.parametrize("shape", [(1, 1), (13, 65)], ids=shapes.shape_name)
def test_without_delta_the_residual_stays(device, shape):
    residual, _, weight = inputs(device, shape)
    total, plain, _ = op.add_norm(device, residual, None, weight, EPSILON)
    np.testing.assert_array_equal(total, residual)
    zero = np.zeros(shape, np.float32)
    _, with_zero, _ = op.add_norm(device, residual, zero, weight, EPSILON)
    np.testing.assert_array_equal(plain, with_zero)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("quantised", [False, True])
def test_each_choice_of_outputs_gives_the_same(device, plain, quantised):
    residual, delta, weight = inputs(device, (5, 96))
    everything = op.add_norm(device, residual, delta, weight, EPSILON)
    chosen = op.add_norm(device, residual, delta, weight, EPSILON, plain, quantised)
    np.testing.assert_array_equal(chosen[0], everything[0])
    if plain:
        np.testing.assert_array_equal(chosen[1], everything[1])
    if quantised:
        np.testing.assert_array_equal(chosen[2].codes, everything[2].codes)
