"""Decode products of 129 to 256 rows of a matrix that is split over K: the sums that its parts
exchange do not fit beside the ring of tiles and are kept over it (native/kernels/stream)."""

import numpy as np
import pytest

from glm_engine.core.float8 import encode_bf16
from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, FP8
from tests import shapes
from tests.native import calls
from tests.native.test_linear import input_rows
from tests.reference.compare import relative_l2

DTYPES = {"bf16": BF16, "fp8": FP8}
MATRICES = {
    "half_of_the_rows_each": ((4226, 2192), (182, 256)),
    "the_same_rows": ((1026, 2192), (214, 256)),
}
NUM_LAUNCHES = 200


@pytest.fixture(autouse=True)
def device_with_a_ring(backend):
    if backend.kind != "cuda":
        pytest.skip("the ring is that of the CUDA device's products: --device-kind cuda runs it")


def launched(device, placed, given, count: int):
    """The bits of each of NUM_LAUNCHES products back to back, in poisoned memory of their own."""
    shape = (count, placed.struct.rows)
    outputs = [op.activation_output(device, shape) for _ in range(NUM_LAUNCHES)]
    fields = {"num_tokens": count, "matrix": placed.pointer}
    fields["input"] = op.activation(device, calls.rows_of(given, slice(count)))
    for output in outputs:
        device.run("linear", output=output.block, **fields)
    return (output.get() for output in outputs)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(("shape", "counts"), MATRICES.values(), ids=MATRICES)
def test_rows_of_every_launch_have_the_bits_they_have_alone(device, shape, counts, dtype):
    weight = shapes.generator("over the ring", *shape).standard_normal(shape)
    placed, exact_weight = calls.matrix(device, weight, dtype)
    given, exact = input_rows(device, max(counts), shape[1], dtype)
    singles = (calls.rows_of(given, slice(row, row + 1)) for row in range(max(counts)))
    alone = np.concatenate([op.linear(device, placed, single) for single in singles])
    assert relative_l2(alone, exact @ exact_weight.T) <= calls.tolerance(device)
    expected = encode_bf16(alone)
    for count in counts:
        for bits in launched(device, placed, given, count):
            np.testing.assert_array_equal(bits, expected[:count])
