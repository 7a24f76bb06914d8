"""Each kernel of a CUDA library at small shapes that reach it, each path of it: what the
sanitizers run (tools/sanitize), with the numbers checked on the way.

Shapes are the least that choose a kernel and make its rings, slots and rounds come around.
"""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, GATE_UP, LINEAR, Matrix
from glm_engine.verify.paging import Heads, HeadScales, Norms, PagedCache, Segment
from tests import shapes
from tests.native import calls
from tests.native.codes import stored_codes
from tests.native.expert_rows import assert_rows, expected_rows, problem, product_error
from tests.native.test_fp8_cache import values_of
from tests.native.test_linear import input_rows
from tests.native.test_sequence import THETA, norms, turned
from tests.reference import fp8
from tests.reference.attention import causal_attention
from tests.reference.compare import relative_l2
from tests.reference.norm import add_norm, rms_norm
from tests.reference.router import route

CACHES = {"bf16": BF16, "fp8": FP8}
FEW_ROWS = (1, 9, 17, 33, 49, 65, 97, 129, 193)
BROAD_ROWS = (1, 17, 33, 65, 97, 129, 193)
WEIGHTS = {
    "few_rows": ((258, 1104), (*BROAD_ROWS, 257, 300, 450)),
    "short_parts": ((1026, 592), (1, 17, 257)),
    "two_tiles": ((258, 144), (1, 17, 33, 257)),
    "long_parts": ((258, 5200), (1, 17, 65, 300)),
    "odd_rows": ((8459, 144), (*FEW_ROWS, 300)),
    "many_rounds": ((25480, 80), (9, 129, 257)),
    "whole_tokens": ((1026, 2192), (97, 129, 193, 321)),
    "one_wave": ((16914, 80), (*FEW_ROWS, 257)),
    "odd_width": ((258, 333), (9, 65, 300)),
}
SHAPES_OF_HEADS = [(258, 512), (1026, 1104), (8459, 144), (16914, 80)]
DISTINCT_ROWS = 130
ROW_WIDTHS = (24, 13, 1017, 1024, 8200, 8201, 12281, 12288, 16392, 16393, 32776, 32777)
EXPERTS = {
    "aligned": ((48, 128, 256, 2), (1, 9, 17, 33, 70, 300, 450)),
    "odd": ((5, 97, 45, 3), (9, 70, 450)),
    "all_of_one": ((1, 64, 48, 1), (3, 70, 450)),
    "many_units": ((64, 64, 576, 8), (8,)),
    "wide": ((2, 32, 2112, 1), (3,)),
}
ROUTERS = {
    "few_experts": (8, 256, (500,)),
    "two_groups": (100, 2600, (500, 1100, 2200)),
    "three_groups": (150, 2600, (500, 1100)),
    "four_groups": (250, 2600, (500,)),
}
HEAD_DIMS = (10, 64, 128, 192, 256)
CONTEXTS = ((1300, 1), (40, 1), (330, 70), (30, 30))
PAGE_SIZE = 16
NUM_LAYERS = 2
LAYER = 1


@pytest.fixture(autouse=True)
def device_with_kernels(backend):
    if backend.kind != "cuda":
        pytest.skip("the kernels are those of the CUDA device: --device-kind cuda runs it")


def repeated_weight(num_rows: int, width: int, dtype: int):
    """(rows as stored, scale or None, exact rows) of which DISTINCT_ROWS repeat."""
    values = shapes.generator("kernel", width).standard_normal((DISTINCT_ROWS, width))
    index = np.arange(num_rows) % DISTINCT_ROWS
    array, scale, exact = calls.stored(values, dtype)
    return array[index], None if scale is None else scale[index], exact[index]


def agree(device, actual, expected, limit: float | None = None) -> None:
    assert relative_l2(actual, expected) <= (limit or calls.tolerance(device))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize(("shape", "counts"), WEIGHTS.values(), ids=WEIGHTS)
def test_linear(device, shape, counts, dtype):
    num_rows, width = shape
    array, scale, exact = repeated_weight(num_rows, width, dtype)
    bias = np.linspace(-1, 1, num_rows, dtype=np.float32)
    placed = Matrix(device, array, dtype, LINEAR, scale, bias)
    given, values = input_rows(device, max(counts), width, dtype)
    expected = values @ exact[:DISTINCT_ROWS].T
    expected = np.tile(expected, -(-num_rows // DISTINCT_ROWS))[:, :num_rows] + bias
    before = np.zeros((0, num_rows), np.float32)
    for count in counts:
        actual = op.linear(device, placed, calls.rows_of(given, slice(count)))
        agree(device, actual, expected[:count])
        np.testing.assert_array_equal(actual[: len(before)], before)
        before = actual


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("shape", [(272, 144), (274, 80)], ids=shapes.shape_name)
def test_gate_up(device, shape, dtype):
    array, scale, exact = repeated_weight(*shape, dtype)
    placed = Matrix(device, array, dtype, GATE_UP, scale)
    given, values = input_rows(device, 300, shape[1], dtype)
    for count in (70, 300):
        actual = op.linear(device, placed, calls.rows_of(given, slice(count)))
        agree(device, actual, values[:count] @ exact.T)


@pytest.mark.parametrize("shape", SHAPES_OF_HEADS, ids=shapes.shape_name)
def test_logits(device, shape):
    array, _, exact = repeated_weight(*shape, BF16)
    placed = Matrix(device, array, BF16)
    values = op.as_activation(device, shapes.generator("head").standard_normal((300, shape[1])))
    chosen = shapes.generator("chosen").integers(0, 300, max(FEW_ROWS))
    before = np.zeros((0, shape[0]), np.float32)
    for count in FEW_ROWS:
        expected = values[chosen[:count]].astype(np.float64) @ exact.T
        actual = op.logits(device, placed, values, chosen[:count])
        agree(device, actual, expected, 1e-5)
        np.testing.assert_array_equal(actual[: len(before)], before)
        in_order = op.logits(device, placed, values[chosen[:count]], None)
        np.testing.assert_array_equal(in_order, actual)
        before = actual


@pytest.mark.parametrize("width", ROW_WIDTHS)
def test_row_operations(device, width):
    rng = shapes.generator("rows", width)
    residual, delta = (op.as_activation(device, rng.standard_normal((3, width))) for _ in range(2))
    weight = (1 + 0.1 * rng.standard_normal(width)).astype(np.float32)
    total, plain, _ = op.add_norm(device, residual, delta, weight, 1e-5)
    exact = add_norm(*(x.astype(np.float64) for x in (residual, delta, weight)), 1e-5)[1]
    agree(device, plain, exact)
    np.testing.assert_array_equal(total, op.as_activation(device, residual + delta))
    codes, scale = fp8.quantise_per_token(residual)
    quantised = op.quantise(device, residual)
    np.testing.assert_array_equal(quantised.codes, codes)
    np.testing.assert_array_equal(quantised.scale, scale[:, 0])
    gate_up = np.concatenate([residual, delta], axis=1)
    gate, up = (part.astype(np.float64) for part in (residual, delta))
    agree(device, op.swiglu(device, gate_up)[0], gate / (1 + np.exp(-gate)) * up)
    for dtype in (F32, BF16):
        table, stored = calls.table(device, rng.standard_normal((5, width)), dtype)
        expected = op.as_activation(device, stored)[[4, 0, 4]]
        np.testing.assert_array_equal(op.embed(device, table, [4, 0, 4]), expected)
        joined = op.embed_norm_concat(
            device, table, [4, 0, 4], [1, 2, 3], residual, (weight, weight), 1e-5
        )
        halves = (rms_norm(each.astype(np.float64), weight, 1e-5) for each in (expected, residual))
        agree(device, joined, np.concatenate(list(halves), axis=1))


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize(("shape", "counts"), EXPERTS.values(), ids=EXPERTS)
def test_experts(device, shape, counts, dtype):
    stack, values, given, ids, weights = problem(device, max(counts), *shape, dtype)
    initial = op.as_activation(device, shapes.generator("initial").standard_normal(values.shape))
    expected = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    before = np.zeros((0, shape[1]), np.float32)
    for count in counts:
        actual = op.experts(
            device,
            stack,
            calls.rows_of(given, slice(count)),
            ids[:count],
            weights[:count],
            initial=initial[:count],
        )
        assert_rows(actual, expected.first(count).plus(initial[:count]), calls.tolerance(device))
        np.testing.assert_array_equal(actual[: len(before)], before)
        before = actual


def assert_routes(device, num_tokens, num_experts, width, dtype):
    rng = shapes.generator("route kernels", num_tokens, width)
    matrix = rng.standard_normal((num_experts, width)) / np.sqrt(width)
    placed, weight = calls.matrix(device, matrix, dtype)
    values = op.as_activation(device, rng.standard_normal((num_tokens, width)))
    bias = (0.1 * rng.standard_normal(num_experts)).astype(np.float32)
    ids, weights = op.route(device, placed, values, bias, 8, True, 2.5)
    expected = route(values.astype(np.float64), weight, bias, 8, 2.5, True)
    sure = expected.margins > 1e-5
    np.testing.assert_array_equal(np.sort(ids[sure]), np.sort(expected.experts[sure]))
    np.testing.assert_allclose(np.sum(weights, axis=1), 2.5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("num_experts", "width"), [(160, 2560), (96, 333)])
@pytest.mark.parametrize("num_tokens", [13, 130, 250])
def test_route(device, num_tokens, num_experts, width, dtype):
    assert_routes(device, num_tokens, num_experts, width, dtype)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("num_experts", "width", "counts"), ROUTERS.values(), ids=ROUTERS)
def test_route_of_many_rows(device, num_experts, width, counts, dtype):
    for num_tokens in counts:
        assert_routes(device, num_tokens, num_experts, width, dtype)


def stored_heads(device, heads: Heads, dtype: int, num_tokens: int, rotary_dim: int):
    """(queries that the device gave, exact queries) of rows stored in pages."""
    ones = np.full((NUM_LAYERS, heads.num_kv_heads), 0.5, np.float32)
    scales = HeadScales(ones, ones) if dtype == FP8 else HeadScales()
    num_pages = -(-num_tokens // PAGE_SIZE)
    cache = PagedCache(device, heads, NUM_LAYERS, num_pages, PAGE_SIZE, dtype, scales)
    qkv = shapes.generator("stored", heads.head_dim).standard_normal((num_tokens, heads.qkv_width))
    qkv = op.as_activation(device, qkv)
    tables = op.rope_tables(device, THETA, rotary_dim, num_tokens)
    positions, norm = np.arange(num_tokens), norms(heads, True)
    query = cache.store(qkv, positions, positions, norm, tables, rotary_dim, LAYER)
    exact, _, _ = turned(heads, qkv, positions, norm, rotary_dim)
    return query, exact.reshape(query.shape)


@pytest.mark.parametrize("dtype", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize(
    ("groups", "num_tokens"), [(1, 17), (2, 260), (4, 260), (5, 1024)], ids=str
)
def test_heads_of_a_block(device, groups, num_tokens, dtype):
    heads_of_group = 32 if dtype == BF16 else 16
    num_kv_heads = groups * heads_of_group // 8
    heads = Heads(6 * num_kv_heads, num_kv_heads, 16)
    agree(device, *stored_heads(device, heads, dtype, num_tokens, 16))


@pytest.mark.parametrize("dtype", CACHES.values(), ids=CACHES)
def test_heads_that_no_vector_fits(device, dtype):
    agree(device, *stored_heads(device, Heads(5, 1, 10), dtype, 17, 4))


def shuffled_segments(num_decode: int) -> tuple[list[Segment], int]:
    """Segments with pages of their own, of which the first have one new row, and their pages."""
    counts = [-(-length // PAGE_SIZE) for length, _ in CONTEXTS]
    pages = shapes.generator("kernel pages").permutation(sum(counts)).tolist()
    segments = []
    for number, (length, num_new) in enumerate(CONTEXTS):
        table = tuple(pages.pop() for _ in range(counts[number]))
        segments.append(Segment(length, 1 if number < num_decode else num_new, table))
    return segments, sum(counts)


def kept_rows(cache: PagedCache, slots: np.ndarray, exact: tuple, scales: HeadScales) -> tuple:
    """(keys, values) that attention reads: exact ones, or those that the cached codes stand for."""
    if cache.struct.dtype != FP8:
        return exact
    codes = stored_codes(cache, LAYER)[:, slots, :, : cache.heads.head_dim]
    return values_of(codes[0], scales.key), values_of(codes[1], scales.value)


@pytest.mark.parametrize("num_decode", [0, 2, 4], ids=["prefill", "mixed", "decode"])
@pytest.mark.parametrize("dtype", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_attention(device, head_dim, dtype, num_decode):
    heads = Heads(12, 1, head_dim)
    halves = np.full((NUM_LAYERS, 1), 0.05, np.float32)
    scales = HeadScales(halves, halves) if dtype == FP8 else HeadScales()
    segments, num_pages = shuffled_segments(num_decode)
    cache = PagedCache(device, heads, NUM_LAYERS, num_pages, PAGE_SIZE, dtype, scales)
    tables = op.rope_tables(device, THETA, 0, 8)
    queries, expected = [], []
    for number, segment in enumerate(segments):
        positions = np.arange(segment.context_length)
        rng = shapes.generator("attended", head_dim, number)
        qkv = op.as_activation(device, rng.standard_normal((len(positions), heads.qkv_width)))
        slots = cache.slots(segment, positions)
        query = cache.store(qkv, positions, slots, Norms(None, None), tables, 0, LAYER)
        query = query[-segment.num_new_tokens :]
        _, key, value = turned(heads, qkv, positions, Norms(None, None), 0)
        kept = kept_rows(cache, slots, (key, value), scales)
        rows = query.astype(np.float64).reshape(len(query), -1, head_dim)
        queries.append(query)
        expected.append(causal_attention(rows, *kept).reshape(query.shape))
    actual = cache.attend(np.concatenate(queries), segments, num_decode, LAYER)
    agree(device, actual, np.concatenate(expected))
