"""A row's bits beside any number of other rows, whichever kernel the number chooses: the products
and experts of few rows and of many have one arithmetic (native/kernels/README.md)."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, FP8, GATE_UP, LINEAR
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import problem
from tests.native.test_linear import input_rows

DTYPES = {"bf16": BF16, "fp8": FP8}
COUNTS = (1, 2, 3, 7, 31, 33, 97, 256, 257, 300, 352, 353, 1000)
MOST_ROWS = 8192
ALONE = (0, 17, 255, 256, 299, 999)
MATRICES = {
    "whole": (LINEAR, 640, 1408),
    "two_parts": (GATE_UP, 2816, 1536),
    "parts_of_odd_rows": (LINEAR, 1026, 2192),
    "eight_parts": (GATE_UP, 384, 2560),
    "width_of_no_vector": (LINEAR, 130, 333),
    "one_tile": (LINEAR, 258, 80),
}
LARGE = {"a_wave_of_units": (LINEAR, 17000, 512), "long_parts": (LINEAR, 4096, 10944)}
EXPERTS = {
    "aligned": (16, 256, 192, 4),
    "odd": (5, 97, 45, 3),
    "many": (64, 128, 640, 8),
    "wide": (6, 640, 704, 3),
    "narrow": (9, 1104, 192, 4),
    "of_one": (1, 64, 48, 1),
    "rows_of_three_rounds": (5, 384, 1640, 2),
    "many_choices": (48, 128, 64, 40),
}
UNEVEN = (40, 640, 640, 4)
BANDED = (64, 2048, 768, 8)
UNEVENNESS = 1.2


def most_rows(device) -> int:
    """Past every choice between kernels of a device; the CPU's has none."""
    return 1000 if device.facts.packs_tiles else 33


def assert_rows_of_counts(operation, whole, counts):
    """operation(slice of rows) has the bits of these rows in `whole`, few and many."""
    parts = [slice(0, count) for count in counts if count <= len(whole)]
    parts += [slice(row, row + 1) for row in ALONE if row < len(whole)]
    parts += [slice(5, 5 + count) for count in (31, 300) if 5 + count <= len(whole)]
    for part in parts:
        np.testing.assert_array_equal(operation(part), whole[part], err_msg=str(part))


def assert_linear(device, role, num_rows, width, dtype, most):
    weight = shapes.generator("any rows", num_rows, width).standard_normal((num_rows, width))
    bias = np.linspace(-1, 1, num_rows, dtype=np.float32)
    placed, _ = calls.matrix(device, weight, dtype, bias, role)
    given, _ = input_rows(device, most, width, dtype)
    whole = op.linear(device, placed, given)
    assert_rows_of_counts(
        lambda part: op.linear(device, placed, calls.rows_of(given, part)), whole, COUNTS
    )


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_linear(device, matrix, dtype):
    assert_linear(device, *matrix, dtype, most_rows(device))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("matrix", LARGE.values(), ids=LARGE)
def test_linear_of_a_prompt(device, matrix, dtype):
    if not device.facts.packs_tiles:
        pytest.skip("the CPU device has one kernel for all: --device-kind cuda runs it")
    assert_linear(device, *matrix, dtype, MOST_ROWS)


def assert_experts(device, stack, values, given, ids, weights):
    initial = op.as_activation(
        device, shapes.generator("any initial").standard_normal(values.shape)
    )

    def operation(part):
        routes = ids[part], weights[part]
        return op.experts(device, stack, calls.rows_of(given, part), *routes, initial=initial[part])

    assert_rows_of_counts(operation, operation(slice(None)), COUNTS)


def uneven_ids(num_tokens, num_experts, top_k):
    """Different experts for each row, the first ones far more often than the last."""
    noise = shapes.generator("uneven", num_tokens, num_experts).gumbel(
        size=(num_tokens, num_experts)
    )
    scores = noise - UNEVENNESS * np.log1p(np.arange(num_experts))
    return np.argsort(-scores, axis=1)[:, :top_k].astype(np.int32)


@pytest.mark.parametrize("loudness", [1.0, 60.0], ids=["usual", "gates_past_the_exponential"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("shape", EXPERTS.values(), ids=EXPERTS)
def test_experts(device, shape, dtype, loudness):
    stack, values, given, ids, weights = problem(device, most_rows(device), *shape, dtype)
    if loudness != 1.0:
        louder = op.as_activation(device, loudness * values)
        given = op.quantise(device, louder) if dtype == FP8 else louder
    assert_experts(device, stack, values, given, ids, weights)


def test_experts_whose_down_units_come_in_bands(device):
    if not device.facts.packs_tiles:
        pytest.skip("the CPU device has one kernel for all: --device-kind cuda runs it")
    stack, values, given, ids, weights = problem(device, most_rows(device), *BANDED, FP8)
    assert_experts(device, stack, values, given, ids, weights)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_experts_of_few_and_many_rows_in_turns(device, dtype):
    if not device.facts.packs_tiles:
        pytest.skip("the CPU device has one kernel for all: --device-kind cuda runs it")
    num_experts, _, _, top_k = UNEVEN
    stack, values, given, _, weights = problem(device, most_rows(device), *UNEVEN, dtype)
    ids = uneven_ids(len(values), num_experts, top_k)
    sizes = np.bincount(ids.ravel(), minlength=num_experts)
    assert sizes.min() < 32
    assert sizes.max() > 400
    for order in (np.arange(num_experts), shapes.generator("turns").permutation(num_experts)):
        assert_experts(device, stack, values, given, order[ids].astype(np.int32), weights)
