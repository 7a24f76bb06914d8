"""Sizes past the tiles, splits and chunks of the devices' kernels, against float64."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32
from glm_engine.verify.paging import Heads, PagedCache, Segment
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import assert_rows, expected_rows, problem, product_error
from tests.native.test_linear import input_rows
from tests.native.test_sequence import THETA, norms, turned
from tests.reference.attention import causal_attention
from tests.reference.compare import relative_l2

PRODUCTS = [(129, 129, 129), (257, 1537, 131), (1, 5120, 257), (129, 12288, 130), (31, 4096, 385)]
CONTEXTS = (1, 16, 17, 255, 1281, 2563)
GROUPS = [Heads(12, 1, 128), Heads(16, 1, 128), Heads(24, 2, 128)]
PAGE_SIZE = 16
STORED_AT_ONCE = 1000
MOST_NEW_TOKENS = 130


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("shape", PRODUCTS, ids=shapes.shape_name)
def test_linear(device, shape, dtype):
    num_tokens, width, num_rows = shape
    weight = shapes.generator("past tiles", *shape).standard_normal((num_rows, width))
    placed, exact_weight = calls.matrix(device, weight, dtype)
    given, exact = input_rows(device, num_tokens, width, dtype)
    actual = op.linear(device, placed, given)
    errors = np.linalg.norm(actual - exact @ exact_weight.T, axis=1)
    assert np.all(errors <= calls.tolerance(device) * np.linalg.norm(actual, axis=1))


@pytest.mark.parametrize("num_rows", [1, 17, 129, 256])
def test_logits(device, num_rows):
    rng = shapes.generator("logits past tiles", num_rows)
    placed, weight = calls.matrix(device, rng.standard_normal((389, 512)), BF16)
    values = op.as_activation(device, rng.standard_normal((300, 512)))
    index = rng.integers(0, 300, num_rows)
    expected = values[index].astype(np.float64) @ weight.T
    assert relative_l2(op.logits(device, placed, values, index), expected) <= 1e-5


def filled_sequence(cache, heads, tables, segment, number):
    """(queries of the segment's new rows, attention's exact answer)."""
    rotary_dim, norm = heads.head_dim // 2, norms(heads, True)
    qkv = shapes.generator("long", number).standard_normal(
        (segment.context_length, heads.qkv_width)
    )
    qkv = op.as_activation(cache.device, qkv)
    positions = np.arange(segment.context_length)
    parts = np.split(positions, range(STORED_AT_ONCE, len(positions), STORED_AT_ONCE))
    stored = [
        cache.store(qkv[part], part, cache.slots(segment, part), norm, tables, rotary_dim)
        for part in parts
    ]
    query = np.concatenate(stored)[-segment.num_new_tokens :]
    _, key, value = turned(heads, qkv, positions, norm, rotary_dim)
    rows = query.astype(np.float64).reshape(len(query), -1, heads.head_dim)
    return query, causal_attention(rows, key, value).reshape(query.shape)


@pytest.mark.parametrize("num_decode", [0, 3, len(CONTEXTS)])
@pytest.mark.parametrize("heads", GROUPS, ids=str)
def test_long_contexts(device, heads, num_decode):
    counts = [-(-length // PAGE_SIZE) for length in CONTEXTS]
    order = shapes.generator("long pages").permutation(sum(counts)).tolist()
    cache = PagedCache(device, heads, 1, sum(counts), PAGE_SIZE)
    tables = op.rope_tables(device, THETA, heads.head_dim // 2, max(CONTEXTS))
    segments, queries, expected = [], [], []
    for number, (length, count) in enumerate(zip(CONTEXTS, counts, strict=True)):
        num_new = 1 if number < num_decode else min(length, MOST_NEW_TOKENS)
        segments.append(Segment(length, num_new, tuple(order.pop() for _ in range(count))))
        query, exact = filled_sequence(cache, heads, tables, segments[-1], number)
        queries.append(query)
        expected.append(exact)
    actual = cache.attend(np.concatenate(queries), segments, num_decode)
    wanted = np.concatenate(expected)
    errors = np.linalg.norm(actual - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
    assert np.max(errors) <= calls.tolerance(device)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "hidden", "width", "top_k"),
    [(1, 160, 128, 96, 8), (65, 160, 128, 96, 8), (131, 8, 449, 129, 3), (3, 4, 512, 512, 4)],
)
def test_experts(device, num_tokens, num_experts, hidden, width, top_k, dtype):
    stack, values, given, ids, weights = problem(
        device, num_tokens, num_experts, hidden, width, top_k, dtype
    )
    expected = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights)
    assert_rows(actual, expected, calls.tolerance(device))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 64, 65, 257])
def test_an_expert_that_takes_every_token(device, num_tokens, dtype):
    stack, values, given, ids, weights = problem(device, num_tokens, 5, 129, 97, 2, dtype)
    ids = np.stack([np.full(num_tokens, 4), ids[:, 0] % 4], axis=1).astype(np.int32)
    weights[:, 0] = 1
    expected = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights)
    assert_rows(actual, expected, calls.tolerance(device))


@pytest.mark.parametrize("num_tokens", shapes.counts())
def test_routes_with_a_shared_expert(device, num_tokens):
    if not device.info.merges_shared_expert:
        pytest.skip("the shared expert runs apart on this device: --device-kind cuda runs it")
    rng = shapes.generator("shared", num_tokens)
    placed, _ = calls.matrix(device, rng.standard_normal((128, 96)), F32)
    values = op.as_activation(device, rng.standard_normal((num_tokens, 96)))
    bias = (0.1 * rng.standard_normal(128)).astype(np.float32)
    ids, weights = op.route(device, placed, values, bias, 8, True, 2.5)
    joined = [device.output((num_tokens, 9), dtype) for dtype in (np.int32, np.float32)]
    device.run(
        "route",
        num_tokens=num_tokens,
        top_k=8,
        num_shared_experts=1,
        normalise=1,
        scaling_factor=2.5,
        input=device.activation(values),
        router=placed.pointer,
        selection_bias=device.place(bias),
        expert_ids=joined[0].block,
        expert_weights=joined[1].block,
    )
    shared_ids = np.full((num_tokens, 1), 128)
    np.testing.assert_array_equal(joined[0].get(), np.hstack([shared_ids, ids]))
    np.testing.assert_array_equal(joined[1].get(), np.hstack([np.ones((num_tokens, 1)), weights]))
