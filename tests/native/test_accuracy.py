"""How near sums of many products come to float64's, before anything is rounded to BF16.

A row's exact sums, negative, are the bias: what `linear` answers is then the error alone. Beside
them an expert's output, which is rounded on the way. `pytest -s` prints each relative L2.
"""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, FP8
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import assert_rows, expected_rows, problem, product_error
from tests.native.test_linear import input_rows
from tests.reference.compare import relative_l2

WIDTHS = (1536, 5120, 12288)
COUNTS = {"few_rows": 13, "many_rows": 600}
NUM_CHANNELS = 512
DRAWS = 3
BF16_ERROR = 3e-6
HIDDEN_SIZE, EXPERT_WIDTH = 640, 384
DTYPES = {"bf16": BF16, "fp8": FP8}
EXPERTS = {"one_of_one": (1, 1), "eight_of_sixteen": (16, 8)}


def error_of_sums(device, width: int, num_rows: int, dtype: int, draw: int) -> float:
    """Relative L2 of the sums of one row that stands `num_rows` times."""
    rng = shapes.generator("accuracy", width, draw)
    weight = rng.standard_normal((NUM_CHANNELS, width))
    given, exact = input_rows(device, 1, width, dtype)
    sums = exact @ calls.stored(weight, dtype)[2].T
    placed, _ = calls.matrix(device, weight, dtype, -sums[0])
    errors = op.linear(device, placed, calls.rows_of(given, np.zeros(num_rows, int)))
    return relative_l2(errors + sums, np.broadcast_to(sums, errors.shape))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("num_rows", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_sums(device, width, num_rows, dtype):
    errors = [error_of_sums(device, width, num_rows, dtype, draw) for draw in range(DRAWS)]
    print(f"linear of K = {width}, {num_rows} rows: {max(errors):.2g}")
    assert min(errors) > 0
    assert max(errors) <= (BF16_ERROR if dtype == BF16 else 1.5 * product_error(device))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("num_rows", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("experts", EXPERTS.values(), ids=EXPERTS)
def test_experts(device, experts, num_rows, dtype):
    num_experts, top_k = experts
    shape = (num_experts, HIDDEN_SIZE, EXPERT_WIDTH, top_k)
    stack, values, given, ids, weights = problem(device, num_rows, *shape, dtype)
    expected = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights)
    error = relative_l2(actual, expected.values)
    print(f"{top_k} of {num_experts} experts, {num_rows} rows: {error:.2g}")
    assert_rows(actual, expected, calls.tolerance(device))
