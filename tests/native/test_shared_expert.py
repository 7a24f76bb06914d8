"""A shared expert with matrices of its own, as wide as the others or narrower, its id far off.

Every rank's `route` names it first, then routed experts of all ranks: among them the one whose id
follows the last local one, which would be the shared expert's if ids were only counted.
"""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, FP8, BackendError
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import (
    ExpectedRows,
    assert_rows,
    expected_rows,
    problem,
    product_error,
)

BEGIN, NUM_ROUTED = 3, 40
SHAPES = {
    "small": (3, 13, 7, 3, 4),
    "tiles": (5, 256, 128, 128, 9),
    "a quarter": (5, 256, 512, 128, 9),
    "an eighth": (2, 128, 1536, 192, 4),
    "odd": (2, 193, 129, 65, 6),
    "alone": (0, 64, 32, 32, 3),
}
COUNTS = (1, 2, 7, 8, 13, 32, 33, 65, 352, 353, 500)


def routes_of_all_ranks(num_tokens: int, num_local: int, top_k: int):
    """Ids and weights as `route` gives them; every second row names the first expert not local."""
    rng = shapes.generator("routes of all ranks", num_tokens, num_local, top_k)
    follower = BEGIN + num_local
    ids = [rng.permutation(NUM_ROUTED)[: top_k - 1] for _ in range(num_tokens)]
    ids = np.array(ids, np.int32).reshape(num_tokens, top_k - 1)
    without = np.flatnonzero(~np.any(ids == follower, axis=1))
    ids[without[::2], -1] = follower
    weights = rng.uniform(0.1, 1, (num_tokens, top_k)).astype(np.float32)
    weights[:, 0] = 1
    return np.hstack([np.full((num_tokens, 1), NUM_ROUTED, np.int32), ids]), weights


def local_ids(ids: np.ndarray, num_local: int) -> np.ndarray:
    """The number of each routed expert in the stack, -1 for one that is not local."""
    is_local = (ids >= BEGIN) & (ids < BEGIN + num_local)
    return np.where(is_local, ids - BEGIN, -1)


def shared_problem(device, hidden: int, width: int, dtype: int) -> op.SharedExpert:
    rng = shapes.generator("shared expert", hidden, width)
    gate_up = rng.standard_normal((1, 2 * width, hidden)) / np.sqrt(hidden)
    down = rng.standard_normal((1, hidden, width)) / np.sqrt(width)
    return op.SharedExpert(NUM_ROUTED, calls.ExpertStack(device, gate_up, down, dtype))


def both(routed: ExpectedRows, shared: ExpectedRows) -> ExpectedRows:
    steps = None if routed.steps is None else [*routed.steps, *shared.steps]
    return ExpectedRows(routed.values + shared.values, steps)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize(
    ("num_local", "hidden", "width", "shared_width", "top_k"), SHAPES.values(), ids=SHAPES
)
def test_it_runs_beside_the_routed_experts(
    device, num_local, hidden, width, shared_width, top_k, dtype
):
    most = max(COUNTS)
    stack, values, given, _, _ = problem(device, most, num_local, hidden, width, 0, dtype)
    shared = shared_problem(device, hidden, shared_width, dtype)
    ids, weights = routes_of_all_ranks(most, num_local, top_k)
    error = product_error(device)
    expected = both(
        expected_rows(stack, values, local_ids(ids, num_local), weights, dtype, error),
        expected_rows(shared.stack, values, ids, weights, dtype, error, begin=shared.id),
    )
    before = np.zeros((0, hidden), np.float32)
    for count in COUNTS:
        rows = calls.rows_of(given, slice(count))
        actual = op.experts(device, stack, rows, ids[:count], weights[:count], BEGIN, shared=shared)
        assert_rows(actual, expected.first(count), calls.tolerance(device))
        np.testing.assert_array_equal(actual[: len(before)], before)
        before = actual


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 13, 400])
def test_its_id_is_nobodys_where_it_is_not_given(device, num_tokens, dtype):
    num_local, hidden, width, _, top_k = SHAPES["tiles"]
    stack, values, given, _, _ = problem(device, num_tokens, num_local, hidden, width, 1, dtype)
    ids, weights = routes_of_all_ranks(num_tokens, num_local, top_k)
    at = local_ids(ids, num_local)
    expected = expected_rows(stack, values, at, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights, BEGIN)
    assert_rows(actual, expected, calls.tolerance(device))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 17, 400])
@pytest.mark.parametrize("has_shared", [False, True])
def test_ids_outside_every_range_belong_to_nobody(device, has_shared, num_tokens, dtype):
    num_local, hidden, width, shared_width, top_k = SHAPES["tiles"]
    stack, _, given, _, _ = problem(device, num_tokens, num_local, hidden, width, 1, dtype)
    shared = shared_problem(device, hidden, shared_width, dtype) if has_shared else None
    _, weights = routes_of_all_ranks(num_tokens, num_local, top_k)
    ids = np.resize(np.array([-1, -2, 2**31 - 1], np.int32), (num_tokens, top_k))
    actual = op.experts(device, stack, given, ids, weights, BEGIN, shared=shared)
    assert not np.any(actual)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 8, 40, 400])
def test_rows_that_choose_it_twice_have_it_twice(device, num_tokens, dtype):
    num_local, hidden, width, shared_width, top_k = SHAPES["a quarter"]
    stack, values, given, _, _ = problem(device, num_tokens, num_local, hidden, width, 0, dtype)
    shared = shared_problem(device, hidden, shared_width, dtype)
    ids, weights = routes_of_all_ranks(num_tokens, num_local, top_k)
    ids[:, 1] = shared.id
    error = product_error(device)
    expected = both(
        expected_rows(stack, values, local_ids(ids, num_local), weights, dtype, error),
        expected_rows(shared.stack, values, ids, weights, dtype, error, begin=shared.id),
    )
    actual = op.experts(device, stack, given, ids, weights, BEGIN, shared=shared)
    assert_rows(actual, expected, calls.tolerance(device))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 65, 400])
def test_one_as_wide_as_the_others_gives_the_bits_of_a_routed_one(device, num_tokens, dtype):
    stack, _, given, ids, weights = problem(device, num_tokens, 6, 64, 32, 4, dtype)
    ids[:, 0] = 5
    ids[:, 1:] %= 5
    counted = op.experts(device, stack, given, ids, weights)
    named = op.experts(
        device, stack, given, ids, weights, local=5, shared=op.SharedExpert(5, stack, 5)
    )
    np.testing.assert_array_equal(named, counted)


@pytest.mark.parametrize(
    ("shared_id", "text"),
    [
        (-2, "shared_expert_id: expected -1 to 2147483647, got -2"),
        (BEGIN, f"expected an id that no local routed expert uses, got {BEGIN}"),
        (BEGIN + 1, f"expected an id that no local routed expert uses, got {BEGIN + 1}"),
    ],
)
def test_ids_that_cannot_be_its_own_are_refused(device, shared_id, text):
    stack, _, given, ids, weights = problem(device, 2, 2, 16, 8, 2, BF16)
    shared = op.SharedExpert(shared_id, stack)
    with pytest.raises(BackendError, match=text):
        op.experts(device, stack, given, ids, weights, BEGIN, shared=shared)


@pytest.mark.parametrize(
    ("hidden", "width", "dtype", "text"),
    [
        (16, 9, BF16, "shared_down columns: expected 1 to 8, got 9"),
        (15, 8, BF16, "shared_gate_up columns: expected 16, got 15"),
        (16, 8, FP8, "shared_gate_up dtype: expected 1, got 2"),
    ],
)
def test_matrices_that_cannot_be_its_own_are_refused(device, hidden, width, dtype, text):
    stack, _, given, ids, weights = problem(device, 2, 2, 16, 8, 2, BF16)
    shared = shared_problem(device, hidden, width, dtype)
    with pytest.raises(BackendError, match=text):
        op.experts(device, stack, given, ids, weights, shared=shared)


def test_as_many_experts_as_a_device_has_places_for_leave_none_for_it(device):
    if device.activation_type == np.float32:
        pytest.skip("the CPU device runs any number of experts: --device-kind cuda runs it")
    stack, _, given, ids, weights = problem(device, 2, 256, 16, 8, 2, BF16)
    shared = shared_problem(device, 16, 8, BF16)
    text = "num_local_experts with a shared expert: expected 0 to 255, got 256"
    with pytest.raises(BackendError, match=text):
        op.experts(device, stack, given, ids, weights, BEGIN, shared=shared)
