"""A shared expert that runs as the last of a rank's experts, its id far from theirs.

Every rank's `route` names it first, then routed experts of all ranks: among them the one whose id
follows the last local one, which would be the shared expert's if ids were only counted.
"""

import numpy as np
import pytest

from tests import shapes
from tests.native import calls as op
from tests.native.expert_rows import assert_rows, expected_rows, problem, product_error
from tools.bindings.backend import BF16, F32, FP8, BackendError

DTYPES = {"f32": F32, "bf16": BF16, "fp8": FP8}
BEGIN, NUM_ROUTED = 3, 40
SHAPES = {
    "small": (3, 13, 7, 4),
    "tiles": (5, 256, 128, 9),
    "odd": (2, 193, 129, 6),
    "alone": (0, 64, 32, 3),
}
COUNTS = (1, 13, 32, 33, 65, 352, 353, 500)


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


def places(ids: np.ndarray, num_local: int, is_host: bool) -> np.ndarray:
    """Which expert of the stack each id stands for, -1 for none."""
    table = np.full(NUM_ROUTED + 1, -1)
    table[BEGIN : BEGIN + num_local] = np.arange(num_local)
    if is_host:
        table[NUM_ROUTED] = num_local
    return table[ids]


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(("num_local", "hidden", "width", "top_k"), SHAPES.values(), ids=SHAPES)
def test_the_host_runs_it_as_its_last_expert(device, num_local, hidden, width, top_k, dtype):
    most = max(COUNTS)
    stack, values, given, _, _ = problem(device, most, num_local + 1, hidden, width, 1, dtype)
    ids, weights = routes_of_all_ranks(most, num_local, top_k)
    at = places(ids, num_local, is_host=True)
    expected = expected_rows(stack, values, at, weights, dtype, product_error(device))
    before = np.zeros((0, hidden), np.float32)
    for count in COUNTS:
        rows = op.rows_of(given, slice(count))
        actual = op.experts(
            device, stack, rows, ids[:count], weights[:count], BEGIN, shared_id=NUM_ROUTED
        )
        assert_rows(actual, expected.first(count), op.tolerance(device))
        np.testing.assert_array_equal(actual[: len(before)], before)
        before = actual


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("num_tokens", [1, 13, 400])
def test_it_is_not_local_on_other_ranks(device, num_tokens, dtype):
    num_local, hidden, width, top_k = SHAPES["tiles"]
    stack, values, given, _, _ = problem(device, num_tokens, num_local, hidden, width, 1, dtype)
    ids, weights = routes_of_all_ranks(num_tokens, num_local, top_k)
    at = places(ids, num_local, is_host=False)
    expected = expected_rows(stack, values, at, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights, BEGIN)
    assert_rows(actual, expected, op.tolerance(device))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("num_tokens", [1, 17, 400])
@pytest.mark.parametrize("shared_id", [op.NO_SHARED_EXPERT, NUM_ROUTED])
def test_ids_outside_every_range_belong_to_nobody(device, shared_id, num_tokens, dtype):
    num_local, hidden, width, top_k = SHAPES["tiles"]
    stack, _, given, _, _ = problem(device, num_tokens, num_local, hidden, width, 1, dtype)
    _, weights = routes_of_all_ranks(num_tokens, num_local, top_k)
    ids = np.resize(np.array([-1, -2, 2**31 - 1], np.int32), (num_tokens, top_k))
    actual = op.experts(device, stack, given, ids, weights, BEGIN, shared_id=shared_id)
    assert not np.any(actual)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("num_tokens", [1, 65, 400])
def test_an_id_that_follows_the_routed_ones_changes_no_bit(device, num_tokens, dtype):
    stack, _, given, ids, weights = problem(device, num_tokens, 6, 64, 32, 4, dtype)
    counted = op.experts(device, stack, given, ids, weights)
    named = op.experts(device, stack, given, ids, weights, shared_id=5)
    np.testing.assert_array_equal(named, counted)


@pytest.mark.parametrize(
    ("shared_id", "local", "text"),
    [
        (-2, 2, "shared_expert_id: expected -1 to 2147483647, got -2"),
        (BEGIN, 2, f"shared_expert_id: expected no local routed expert's id, got {BEGIN}"),
        (NUM_ROUTED, 0, "num_local_experts with a shared one: expected 1 to .*, got 0"),
    ],
)
def test_ids_that_cannot_be_its_own_are_refused(device, shared_id, local, text):
    stack, _, given, ids, weights = problem(device, 2, 2, 16, 8, 2, F32)
    with pytest.raises(BackendError, match=text):
        op.experts(device, stack, given, ids, weights, BEGIN, local, shared_id=shared_id)
