"""Each operation of the device under test beside Futhark's entry points: the multicore library
everywhere, the CUDA library on a GPU. Both are called without a device of ours in between."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, library_path
from glm_engine.verify.drawing import draw, varied_controls
from glm_engine.verify.paging import Heads, Norms, PagedCache, Segment
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import assert_rows, expected_rows, product_error
from tests.native.futhark_oracle import Oracle, OraclePages
from tests.native.futhark_program import LIBRARIES, FutharkError, Program
from tests.native.test_against_futhark import SIZES, by_id, rounded
from tests.reference.compare import relative_l2

KINDS = {"multicore": "cpu", "cuda": "cuda"}
TARGETS = {"cpu": "futhark_cpu", "cuda": "futhark"}
PAGE_SIZE = 16


def missing(kind: str) -> str | None:
    folder = library_path(kind).parent
    for name in (LIBRARIES[kind], f"kernels_{kind}.json"):
        if not (folder / name).exists():
            return f"{name} is not built: scons {TARGETS[kind]} makes it"
    return None


@pytest.fixture(scope="module", params=KINDS)
def oracle(request, backend):
    kind = KINDS[request.param]
    if kind == "cuda" and backend.kind != "cuda":
        pytest.skip("Futhark's CUDA library needs a GPU: --device-kind cuda runs it")
    reason = missing(kind)
    if reason:
        pytest.skip(reason)
    with backend.device():
        try:
            program = Program(kind)
        except OSError as error:
            pytest.skip(f"Futhark's {request.param} library cannot be opened here: {error}")
    yield Oracle(program)
    program.close()


def agree(device, actual, expected, limit: float | None = None) -> None:
    assert relative_l2(actual, expected) <= (limit or calls.tolerance(device))


@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_quantise_gives_the_same_codes(device, oracle, size):
    values = rounded((size[0], size[2]))
    actual, expected = op.quantise(device, values), oracle.quantise(values)
    np.testing.assert_array_equal(actual.codes, expected.codes)
    np.testing.assert_array_equal(actual.scale, expected.scale)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_linear(device, oracle, size, dtype):
    num_tokens, num_rows, width = size
    weight, values = rounded((num_rows, width), 1), rounded((num_tokens, width), 2)
    bias = rounded((1, num_rows), 3)[0]
    expected = oracle.linear(weight, values, dtype, bias)
    placed, _ = calls.matrix(device, weight, dtype, bias)
    given = op.quantise(device, values) if dtype == FP8 else values
    agree(device, op.linear(device, placed, given), expected)


@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_norm_and_swiglu(device, oracle, size):
    residual, delta, weight = (rounded((size[0], 2 * size[2]), part) for part in range(3))
    actual = op.add_norm(device, residual, delta, weight[0], 1e-5)
    for mine, theirs in zip(
        actual, oracle.add_norm(residual, delta, weight[0], 1e-5), strict=False
    ):
        agree(device, mine, theirs)
    agree(device, op.swiglu(device, residual)[0], oracle.swiglu(residual))


@pytest.mark.parametrize("dtype", calls.PLAIN_WEIGHTS.values(), ids=calls.PLAIN_WEIGHTS)
def test_logits(device, oracle, dtype):
    weight, values = rounded((131, 96), 1), rounded((9, 96), 2)
    head, _ = calls.matrix(device, weight, dtype)
    actual = op.logits(device, head, values, [8, 0, 3])
    agree(device, actual, oracle.logits(weight, values, dtype, [8, 0, 3]), 1e-5)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_embeddings(device, oracle, dtype):
    weight = rounded((131, 96), 1)
    table, _ = calls.table(device, weight, dtype)
    ids = [0, 130, 7, 7]
    np.testing.assert_array_equal(op.embed(device, table, ids), oracle.embed(weight, dtype, ids))


def test_route(device, oracle):
    weight, values = rounded((160, 96), 1), rounded((70, 96), 2)
    bias = shapes.generator("futhark bias").uniform(-0.1, 0.1, 160)
    router, _ = calls.matrix(device, weight, F32)
    actual = by_id(op.route(device, router, values, bias, 8))
    expected = by_id(oracle.route(weight, values, bias, 8))
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 70])
def test_experts(device, oracle, dtype, num_tokens):
    rng = shapes.generator("futhark experts", num_tokens)
    gate_up, down = rounded((8, 192, 128), 1) / 12, rounded((8, 128, 96), 2) / 10
    values, initial = rounded((num_tokens, 128), 3), rounded((num_tokens, 128), 4)
    ids = np.array([rng.permutation(8)[:3] for _ in range(num_tokens)], np.int32)
    weights = rng.uniform(0.1, 1, ids.shape).astype(np.float32)
    expected = oracle.experts(gate_up, down, dtype, values, ids, weights, initial)
    stack = calls.ExpertStack(device, gate_up, down, dtype)
    given = op.quantise(device, values) if dtype == FP8 else values
    exact = expected_rows(stack, values, ids, weights, dtype, product_error(device))
    actual = op.experts(device, stack, given, ids, weights, initial=initial)
    assert_rows(actual, exact.as_answered(expected), calls.tolerance(device))


def test_rope_tables(device, oracle):
    actual = [table.get() for table in op.rope_tables(device, 1e6, 64, 300)]
    for mine, theirs in zip(actual, oracle.rope_tables(1e6, 64, 300), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("num_decode", [0, 1], ids=["prefill", "decode"])
@pytest.mark.parametrize("layout", shapes.HEAD_LAYOUTS.values(), ids=shapes.HEAD_LAYOUTS)
def test_attention_through_pages(device, oracle, layout, num_decode):
    heads, length, layer = Heads(*layout), 77, 1
    rotary_dim = heads.head_dim // 4 * 2
    qkv = rounded((length, heads.qkv_width))
    norms = Norms(*(1 + 0.1 * rounded((2, heads.head_dim), 5)))
    segment = Segment(length, 1 if num_decode else length, tuple(range(7, -1, -1)))
    positions, last = np.arange(length), -segment.num_new_tokens
    cache = PagedCache(device, heads, 2, 8, PAGE_SIZE)
    tables = op.rope_tables(device, 1e6, rotary_dim, 128)
    slots = cache.slots(segment, positions)
    query = cache.store(qkv, positions, slots, norms, tables, rotary_dim, layer)
    pages = OraclePages(oracle, heads, 2, 8, PAGE_SIZE)
    angles = oracle.rope_tables(1e6, rotary_dim, 128)
    slots = pages.slots(segment, positions)
    expected_query = pages.store(qkv, positions, slots, norms, angles, layer)
    agree(device, query, expected_query)
    actual = cache.attend(query[last:], [segment], num_decode, layer)
    agree(device, actual, pages.attend(expected_query[last:], segment, layer))


@pytest.mark.parametrize("reset", [False, True], ids=["added", "reset"])
@pytest.mark.parametrize("from_prompt", [False, True], ids=["output", "prompt"])
def test_counts(device, oracle, reset, from_prompt):
    rng = shapes.generator("futhark counts", reset, from_prompt)
    counts = rng.integers(0, 5, 4099).astype(np.uint32)
    ids = rng.integers(0, 4099, 300).astype(np.int32)
    placed = device.place(counts)
    device.run(
        "count_tokens",
        counts=placed,
        vocab_size=counts.size,
        num_tokens=ids.size,
        token_ids=device.place(ids),
        from_prompt=int(from_prompt),
        reset=int(reset),
    )
    expected = oracle.count_tokens(counts, ids, reset, from_prompt)
    np.testing.assert_array_equal(device.download(placed, counts.shape, np.uint32), expected)


def test_sampling_draws_the_same_tokens(device, oracle):
    logits = (3 * rounded((24, 4099))).astype(np.float32)
    controls = varied_controls(24)
    actual = draw(device, logits, controls, 5)
    ids, is_finite, logprob, top_ids, top_logprobs = oracle.sample(logits, controls, 5)
    np.testing.assert_array_equal(actual.token_ids, ids)
    np.testing.assert_array_equal(actual.is_finite, is_finite)
    np.testing.assert_array_equal(actual.top_ids[:, :5], top_ids)
    np.testing.assert_allclose(actual.logprob, logprob, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(actual.top_logprobs[:, :5], top_logprobs, rtol=1e-4, atol=1e-4)


def test_wrong_arguments_are_named(oracle):
    with pytest.raises(FutharkError, match="expected 2 dimensions, got 1"):
        oracle.program.call("quantise", np.zeros(3))
    with pytest.raises(FutharkError, match="norm"):
        oracle.program.call("norm", 1e-5, np.zeros(3), np.zeros((2, 4)))
