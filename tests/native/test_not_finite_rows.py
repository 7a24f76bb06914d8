"""Rows of experts that are NaN, infinite or zero: they change no bit of another row."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8
from tests.native import calls
from tests.native.expert_rows import problem

SHAPES = {"small": (3, 13, 7, 2), "tiles": (5, 256, 128, 3), "wide": (2, 64, 2112, 1)}
COUNTS = (4, 8, 16, 40, 70, 400)
ROWS = {0: np.nan, 1: np.inf, 2: 0.0}


def with_rows(device, values: np.ndarray, dtype: int):
    """The values with ROWS in the place of its first rows, as the operation is given them."""
    spoilt = values.copy()
    for row, value in ROWS.items():
        spoilt[row] = value
    if dtype != FP8:
        return spoilt
    given = op.quantise(device, values)
    scale = given.scale.copy()
    for row, value in ROWS.items():
        scale[row] = value
    return op.Quantised(given.codes, scale)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_they_touch_no_other_row(device, shape, dtype, count):
    stack, values, given, ids, weights = problem(device, count, *shape, dtype)
    sound = op.experts(device, stack, given, ids, weights)
    spoilt = op.experts(device, stack, with_rows(device, values, dtype), ids, weights)
    assert not np.isfinite(spoilt[:2]).any()
    np.testing.assert_array_equal(spoilt[2], np.zeros(shape[1]))
    np.testing.assert_array_equal(spoilt[len(ROWS) :], sound[len(ROWS) :])
    assert np.isfinite(sound).all()
