"""Each operation of the device under test beside Futhark's own, which the CPU device runs."""

from dataclasses import dataclass

import numpy as np
import pytest

from glm_engine.core.float8 import round_to_bf16
from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, Backend, Device, library_path
from glm_engine.verify.drawing import draw, varied_controls
from glm_engine.verify.paging import Heads, Norms, PagedCache, Segment
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import assert_rows, exact_stack, expected_rows, product_error
from tests.reference.compare import relative_l2

SIZES = [(1, 130, 64), (13, 257, 193), (70, 96, 320)]


@dataclass(frozen=True)
class Pair:
    device: Device
    futhark: Device

    def both(self, work) -> tuple:
        return work(self.device), work(self.futhark)

    def agree(self, work, limit: float | None = None) -> None:
        actual, expected = self.both(work)
        assert relative_l2(actual, expected) <= (limit or calls.tolerance(self.device))


@pytest.fixture(scope="module")
def futhark():
    if not library_path("cpu").exists():
        pytest.skip("Futhark's operations are in libglm_cpu.so, which is not built")
    with Backend("cpu").device(num_threads=2) as opened:
        yield opened


@pytest.fixture
def pair(device, futhark):
    if device.table.kind == futhark.table.kind:
        pytest.skip("the device under test is Futhark's own: --device-kind cuda runs it")
    yield Pair(device, futhark)
    futhark.release_blocks()


def rounded(shape, *key) -> np.ndarray:
    """Normal values that BF16 holds exactly, so that both devices see the same."""
    return round_to_bf16(shapes.generator("futhark", *shape, *key).standard_normal(shape))


@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_quantise_gives_the_same_codes(pair, size):
    values = rounded((size[0], size[2]))
    actual, expected = pair.both(lambda device: op.quantise(device, values))
    np.testing.assert_array_equal(actual.codes, expected.codes)
    np.testing.assert_array_equal(actual.scale, expected.scale)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_linear(pair, size, dtype):
    num_tokens, num_rows, width = size
    weight, values = rounded((num_rows, width), 1), rounded((num_tokens, width), 2)
    bias = rounded((1, num_rows), 3)[0]

    def work(device):
        placed, _ = calls.matrix(device, weight, dtype, bias)
        given = op.quantise(device, values) if dtype == FP8 else values
        return op.linear(device, placed, given)

    pair.agree(work)


@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_norm_and_swiglu(pair, size):
    residual, delta, weight = (rounded((size[0], 2 * size[2]), part) for part in range(3))
    pair.agree(lambda device: op.add_norm(device, residual, delta, weight[0], 1e-5)[1])
    pair.agree(lambda device: op.swiglu(device, residual)[0])


@pytest.mark.parametrize("dtype", calls.PLAIN_WEIGHTS.values(), ids=calls.PLAIN_WEIGHTS)
def test_logits(pair, dtype):
    weight, values = rounded((131, 96), 1), rounded((9, 96), 2)

    def work(device):
        return op.logits(device, calls.matrix(device, weight, dtype)[0], values, [8, 0, 3])

    pair.agree(work, 1e-5)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_embeddings(pair, dtype):
    weight = rounded((131, 96), 1)

    def work(device):
        return op.embed(device, calls.table(device, weight, dtype)[0], [0, 130, 7, 7])

    actual, expected = pair.both(work)
    np.testing.assert_array_equal(actual, expected)


def by_id(routes):
    ids, weights = routes
    order = np.argsort(ids, axis=1)
    return np.take_along_axis(ids, order, 1), np.take_along_axis(weights, order, 1)


def test_route(pair):
    weight, values = rounded((160, 96), 1), rounded((70, 96), 2)
    bias = shapes.generator("futhark bias").uniform(-0.1, 0.1, 160)

    def work(device):
        return by_id(op.route(device, calls.matrix(device, weight, F32)[0], values, bias, 8))

    actual, expected = pair.both(work)
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_allclose(actual[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("num_tokens", [1, 70])
def test_experts(pair, dtype, num_tokens):
    rng = shapes.generator("futhark experts", num_tokens)
    gate_up, down = rounded((8, 192, 128), 1) / 12, rounded((8, 128, 96), 2) / 10
    values, initial = rounded((num_tokens, 128), 3), rounded((num_tokens, 128), 4)
    ids = np.array([rng.permutation(8)[:3] for _ in range(num_tokens)], np.int32)
    weights = rng.uniform(0.1, 1, ids.shape).astype(np.float32)

    def work(device):
        stack = calls.ExpertStack(device, gate_up, down, dtype)
        given = op.quantise(device, values) if dtype == FP8 else values
        return op.experts(device, stack, given, ids, weights, initial=initial)

    stack = exact_stack(gate_up, down, dtype)
    exact = expected_rows(stack, values, ids, weights, dtype, product_error(pair.device))
    actual, expected = pair.both(work)
    assert_rows(actual, exact.as_answered(expected), calls.tolerance(pair.device))


@pytest.mark.parametrize("num_decode", [0, 1], ids=["prefill", "decode"])
@pytest.mark.parametrize("layout", shapes.HEAD_LAYOUTS.values(), ids=shapes.HEAD_LAYOUTS)
def test_attention_through_pages(pair, layout, num_decode):
    heads, length = Heads(*layout), 77
    rotary_dim = heads.head_dim // 4 * 2
    qkv = rounded((length, heads.qkv_width))
    norms = Norms(*(1 + 0.1 * rounded((2, heads.head_dim), 5)))
    segment = Segment(length, 1 if num_decode else length, tuple(range(7, -1, -1)))

    def work(device):
        cache = PagedCache(device, heads, 2, 8, 16)
        tables = op.rope_tables(device, 1e6, rotary_dim, 128)
        positions = np.arange(length)
        slots = cache.slots(segment, positions)
        query = cache.store(qkv, positions, slots, norms, tables, rotary_dim, layer=1)
        return cache.attend(query[-segment.num_new_tokens :], [segment], num_decode, layer=1)

    pair.agree(work)


def test_sampling_draws_the_same_tokens(pair):
    logits = (3 * rounded((24, 4099))).astype(np.float32)
    controls = varied_controls(24)
    actual, expected = pair.both(lambda device: draw(device, logits, controls, 5))
    np.testing.assert_array_equal(actual.token_ids, expected.token_ids)
    np.testing.assert_array_equal(actual.top_ids[:, :5], expected.top_ids[:, :5])
    np.testing.assert_allclose(actual.logprob, expected.logprob, rtol=1e-4, atol=1e-4)
