import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import assert_rows, expected_rows, problem, product_error
from tests.reference.router import route


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize("num_tokens", shapes.counts())
@pytest.mark.parametrize(("num_experts", "top_k"), [(1, 1), (8, 2), (160, 8), (5, 5)])
@pytest.mark.parametrize("normalise", [False, True])
def test_route(device, num_tokens, num_experts, top_k, normalise, dtype):
    rng = shapes.generator("route", num_tokens, num_experts)
    placed, weight = calls.matrix(device, rng.standard_normal((num_experts, 48)), dtype)
    values = op.as_activation(device, rng.standard_normal((num_tokens, 48)))
    bias = (0.1 * rng.standard_normal(num_experts)).astype(np.float32)
    expected = route(values.astype(np.float64), weight, bias, top_k, 2.5, normalise)
    choice = 1 / (1 + np.exp(-(values.astype(np.float64) @ weight.T))) + bias
    routes = op.route(device, placed, values, bias, top_k, normalise, 2.5)
    assert_routes(*routes, expected, choice)


def assert_routes(ids, weights, expected, choice):
    sure = expected.margins > 1e-5
    for token in np.flatnonzero(sure):
        assert set(ids[token]) == set(expected.experts[token])
        order = choice[token, ids[token]]
        assert np.all(np.diff(order) < 1e-5)
    by_id = [np.argsort(ids, axis=-1), np.argsort(expected.experts, axis=-1)]
    actual = np.take_along_axis(weights, by_id[0], -1)[sure]
    wanted = np.take_along_axis(expected.weights, by_id[1], -1)[sure]
    np.testing.assert_allclose(actual, wanted, rtol=1e-5)


@pytest.mark.parametrize("width", [4, 8])
def test_equal_scores_go_to_the_lower_ids_in_order(device, width):
    placed, _ = calls.matrix(device, np.zeros((6, width)), F32)
    bias = np.array([0, 1, 0, 1, 1, 0], np.float32)
    ids, weights = op.route(device, placed, np.ones((2, width)), bias, 4, False, 1.0)
    np.testing.assert_array_equal(ids, [[1, 3, 4, 0]] * 2)
    np.testing.assert_array_equal(weights, np.full((2, 4), 0.5))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", shapes.counts())
@pytest.mark.parametrize(
    ("num_experts", "hidden", "width", "top_k"), [(1, 13, 7, 1), (8, 65, 37, 2), (4, 64, 128, 4)]
)
def test_experts(device, num_tokens, num_experts, hidden, width, top_k, dtype):
    stack, values, given, ids, weights = problem(
        device, num_tokens, num_experts, hidden, width, top_k, dtype
    )
    expected = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights)
    assert_rows(actual, expected, calls.tolerance(device))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 8, 13])
def test_equal_ids_in_a_row_count_each_time(device, num_tokens, dtype):
    stack, values, given, ids, weights = problem(device, num_tokens, 4, 64, 72, 4, dtype)
    ids = shapes.generator("equal ids", num_tokens).integers(0, 2, ids.shape).astype(np.int32)
    expected = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights)
    assert_rows(actual, expected, calls.tolerance(device))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
def test_only_local_experts_add_to_the_initial_rows(device, dtype):
    stack, values, given, ids, weights = problem(device, 13, 4, 65, 37, 2, dtype, padding=64)
    ids = ids + 3
    initial = op.as_activation(device, shapes.generator("initial").standard_normal((13, 65)))
    begin = 4
    error = product_error(device)
    expected = expected_rows(stack, values, ids, weights, dtype, error, begin).plus(initial)
    actual = op.experts(device, stack, given, ids, weights, begin, initial=initial)
    assert_rows(actual, expected, calls.tolerance(device))


def test_no_local_expert_leaves_the_initial_rows(device):
    stack, _, given, ids, weights = problem(device, 5, 2, 16, 8, 2, BF16)
    initial = op.as_activation(device, np.ones((5, 16)))
    for begin, local in ((7, None), (0, 0)):
        actual = op.experts(device, stack, given, ids, weights, begin, local, initial)
        np.testing.assert_array_equal(actual, initial)
        without = op.experts(device, stack, given, ids, weights, begin, local)
        np.testing.assert_array_equal(without, np.zeros((5, 16)))
