"""A row's bits depend on its own data alone: not on the batch, its place in it, or the threads."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8
from glm_engine.verify.drawing import Controls, draw
from glm_engine.verify.facts import FACTS
from glm_engine.verify.paging import Heads, Norms, PagedCache, Segment
from tests import shapes
from tests.native import calls

NUM_ROWS = 2 * shapes.TILE + 3
WIDTH = 75
ROW_WIDTHS = (WIDTH, 1017, 1024, 5120, 9000, 12288)
PARTS = (slice(0, 1), slice(7, 20), slice(31, 33), slice(NUM_ROWS - 1, NUM_ROWS), slice(None))


def same_over_parts_and_threads(backend, build):
    """build(device) gives a function from a slice of rows to a tuple of arrays."""
    expected = None
    for num_threads in FACTS[backend.kind].thread_counts:
        with backend.device(num_threads) as device:
            operation = build(device)
            expected = expected or operation(slice(None))
            for part in PARTS:
                for rows, all_rows in zip(operation(part), expected, strict=True):
                    np.testing.assert_array_equal(rows, all_rows[part])


def values(name, width=WIDTH):
    return shapes.generator("rows", name).standard_normal((NUM_ROWS, width)).astype(np.float32)


def given(device, name, dtype, part):
    rows = values(name)[part]
    return op.quantise(device, rows) if dtype == FP8 else rows


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
def test_linear(backend, dtype):
    weight = shapes.generator("weight").standard_normal((130, WIDTH))

    def build(device):
        placed, _ = calls.matrix(device, weight, dtype, np.ones(130))

        def operation(part):
            return (op.linear(device, placed, given(device, "linear", dtype, part)),)

        return operation

    same_over_parts_and_threads(backend, build)


@pytest.mark.parametrize("width", ROW_WIDTHS)
def test_norm(backend, width):
    residual, delta = values("norm", width), values("delta", width)

    def build(device):
        def operation(part):
            total, plain, quantised = op.add_norm(
                device, residual[part], delta[part], np.ones(width), 1e-5
            )
            return total, plain, quantised.codes, quantised.scale

        return operation

    same_over_parts_and_threads(backend, build)


@pytest.mark.parametrize("width", ROW_WIDTHS)
def test_quantise(backend, width):
    rows = values("quantise", width)

    def build(device):
        def operation(part):
            quantised = op.quantise(device, rows[part])
            return quantised.codes, quantised.scale

        return operation

    same_over_parts_and_threads(backend, build)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_route(backend, dtype):
    weight = shapes.generator("router").standard_normal((65, WIDTH))

    def build(device):
        placed, _ = calls.matrix(device, weight, dtype)

        def operation(part):
            return op.route(device, placed, values("route")[part], np.zeros(65), 8)

        return operation

    same_over_parts_and_threads(backend, build)


@pytest.mark.parametrize("dtype", calls.PLAIN_WEIGHTS.values(), ids=calls.PLAIN_WEIGHTS)
def test_logits(backend, dtype):
    weight = shapes.generator("router").standard_normal((65, WIDTH))

    def build(device):
        placed, _ = calls.matrix(device, weight, dtype)

        def operation(part):
            rows = values("route")[part]
            return (op.logits(device, placed, rows, np.arange(len(rows))),)

        return operation

    same_over_parts_and_threads(backend, build)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
@pytest.mark.parametrize(("num_experts", "width"), [(65, 1096), (160, 72), (250, 520)])
def test_routes_of_many_rows_and_of_few(device, num_experts, width, dtype):
    rng = shapes.generator("many routes", num_experts, width)
    matrix = rng.standard_normal((num_experts, width)) / np.sqrt(width)
    placed, _ = calls.matrix(device, matrix, dtype)
    rows = rng.standard_normal((1100, width)).astype(np.float32)
    bias = (0.1 * rng.standard_normal(num_experts)).astype(np.float32)
    whole = op.route(device, placed, rows, bias, 8)
    for begin, end in ((0, 1), (1, 257), (3, 483), (100, 581), (500, 513), (600, 1100)):
        part = slice(begin, end)
        routes = op.route(device, placed, rows[part], bias, 8)
        for few, many in zip(routes, whole, strict=True):
            np.testing.assert_array_equal(few, many[part])


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
def test_experts(backend, dtype):
    rng = shapes.generator("mixture")
    gate_up, down = rng.standard_normal((5, 74, WIDTH)), rng.standard_normal((5, WIDTH, 37))
    ids = np.array([rng.permutation(5)[:2] for _ in range(NUM_ROWS)], np.int32)
    weights = rng.random((NUM_ROWS, 2)).astype(np.float32)

    def build(device):
        stack = calls.ExpertStack(device, gate_up, down, dtype)

        def operation(part):
            rows = given(device, "mixture", dtype, part)
            return (op.experts(device, stack, rows, ids[part], weights[part]),)

        return operation

    same_over_parts_and_threads(backend, build)


def test_sampling(backend):
    rng = shapes.generator("drawn")
    logits = rng.standard_normal((NUM_ROWS, WIDTH)).astype(np.float32)
    controls = [Controls(seed=r, top_p=0.9, top_k=20, min_p=0.01) for r in range(NUM_ROWS)]

    def build(device):
        def operation(part):
            drawn = draw(device, logits[part], controls[part], 4)
            return drawn.token_ids, drawn.logprob, drawn.top_logprobs

        return operation

    same_over_parts_and_threads(backend, build)


@pytest.mark.parametrize(
    ("heads", "length", "page_size"),
    [(Heads(6, 2, 10), 37, 4), (Heads(3, 3, 8), 131, 3), (Heads(24, 2, 16), 30, 16)],
    ids=["three a group", "one a group", "twelve a group"],
)
def test_attention_whole_in_chunks_and_row_by_row(backend, heads, length, page_size):
    num_pages = -(-length // page_size) + 3
    qkv = shapes.generator("chunks").standard_normal((length, heads.qkv_width))
    pages = tuple(int(page) for page in shapes.generator("order").permutation(num_pages))
    norms = Norms(np.ones(heads.head_dim), np.ones(heads.head_dim))
    results = []
    for num_threads in FACTS[backend.kind].thread_counts:
        with backend.device(num_threads) as device:
            tables = op.rope_tables(device, 1e6, 4, 256)
            for chunk in (length, 23, 7, 1):
                cache = PagedCache(device, heads, 1, num_pages, page_size)
                outputs = []
                for begin in range(0, length, chunk):
                    end = min(begin + chunk, length)
                    segment = Segment(end, end - begin, pages)
                    positions = segment.positions()
                    query = cache.store(
                        qkv[begin:end],
                        positions,
                        cache.slots(segment, positions),
                        norms,
                        tables,
                        4,
                    )
                    outputs.append(cache.attend(query, [segment]))
                results.append(np.concatenate(outputs))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
