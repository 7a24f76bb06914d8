"""RoPE tables, the norm of q and k, the paged cache and attention through it."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.paging import Heads, Norms, PagedCache, Segment
from tests import shapes
from tests.native import calls
from tests.reference.attention import causal_attention
from tests.reference.compare import relative_l2
from tests.reference.norm import rms_norm
from tests.reference.rope import angles, rotate

THETA = 1e6
PAGE_SIZE = 4
NUM_PAGES = 64


@pytest.mark.parametrize("theta", [1e4, 1e6])
@pytest.mark.parametrize("rotary_dim", [0, 2, 10, 64])
@pytest.mark.parametrize("num_positions", shapes.counts())
def test_rope_table(device, theta, rotary_dim, num_positions):
    cosine, sine = op.rope_tables(device, theta, rotary_dim, num_positions)
    angle = angles(np.arange(num_positions), rotary_dim, theta)
    for actual, expected in ((cosine.get(), np.cos(angle)), (sine.get(), np.sin(angle))):
        np.testing.assert_allclose(actual, expected.astype(np.float32), rtol=2e-7, atol=1e-7)


def pages_of(batch, seed, page_size):
    """Segments with pages drawn without repetition from the pool."""
    free = list(shapes.generator("pages", seed).permutation(NUM_PAGES))
    segments = []
    for cached, new in batch:
        needed = -(-(cached + new) // page_size)
        segments.append(Segment(cached + new, new, tuple(int(free.pop()) for _ in range(needed))))
    return segments


def norms(heads, wanted):
    rng = shapes.generator("norms", heads.head_dim)
    weights = 1 + 0.1 * rng.standard_normal((2, heads.head_dim)).astype(np.float32)
    return Norms(*weights) if wanted else Norms(None, None)


def split(heads, qkv):
    """q, k, v as [tokens, heads, head_dim] in float64."""
    return np.split(
        qkv.astype(np.float64).reshape(len(qkv), -1, heads.head_dim),
        [heads.num_heads, heads.num_heads + heads.num_kv_heads],
        axis=1,
    )


def normed(values, weight, epsilon):
    return values if weight is None else rms_norm(values, weight.astype(np.float64), epsilon)


def turned(heads, qkv, positions, norm, rotary_dim):
    query, key, value = split(heads, qkv)
    factor = rotary_dim / heads.head_dim
    query, key = (
        rotate(normed(part, weight, norm.epsilon), positions, THETA, factor)
        for part, weight in ((query, norm.query), (key, norm.key))
    )
    return query, key, value


@pytest.mark.parametrize("with_norms", [False, True])
@pytest.mark.parametrize("layout", shapes.HEAD_LAYOUTS.values(), ids=shapes.HEAD_LAYOUTS)
@pytest.mark.parametrize("batch", shapes.ragged_batches(), ids=str)
def test_whole_and_split_sequences(device, batch, layout, with_norms):
    heads = Heads(*layout)
    rotary_dim = heads.head_dim // 4 * 2
    norm = norms(heads, with_norms)
    cache = PagedCache(device, heads, 2, NUM_PAGES, PAGE_SIZE)
    tables = op.rope_tables(device, THETA, rotary_dim, 128)
    queries, expected, segments = [], [], pages_of(batch, 1, cache.page_size)
    for number, segment in enumerate(segments):
        rng = shapes.generator("sequence", number, *layout)
        qkv = op.as_activation(
            device, rng.standard_normal((segment.context_length, heads.qkv_width))
        )
        positions = np.arange(segment.context_length)
        slots = cache.slots(segment, positions)
        query = cache.store(qkv, positions, slots, norm, tables, rotary_dim, layer=1)
        wanted, key, value = turned(heads, qkv, positions, norm, rotary_dim)
        assert relative_l2(query, wanted.reshape(query.shape)) <= calls.tolerance(device)
        queries.append(query[-segment.num_new_tokens :])
        rows = queries[-1].astype(np.float64).reshape(segment.num_new_tokens, -1, heads.head_dim)
        expected.append(causal_attention(rows, key, value).reshape(segment.num_new_tokens, -1))
    if not segments:
        assert cache.attend(np.zeros((0, heads.num_heads * heads.head_dim)), []).shape[0] == 0
        return
    actual = cache.attend(np.concatenate(queries), segments, layer=1)
    assert relative_l2(actual, np.concatenate(expected)) <= calls.tolerance(device)


def test_storing_leaves_other_slots_and_layers(device):
    heads = Heads(2, 1, 10)
    cache = PagedCache(device, heads, 3, 5, PAGE_SIZE)
    size = cache.page_size
    before = cache.contents()
    qkv = shapes.generator("untouched").standard_normal((2, heads.qkv_width))
    tables = op.rope_tables(device, THETA, 4, 16)
    cache.store(qkv, [3, 4], [2 * size + 1, 4 * size], norms(heads, True), tables, 4, 1)
    changed = before != cache.contents()
    np.testing.assert_array_equal(np.argwhere(np.any(changed, axis=2)), [[2, 1], [4, 1]])
    slot_bytes = cache.page_bytes // (3 * size)
    assert np.sum(changed) <= 2 * slot_bytes


def test_large_scores_stay_finite(device):
    heads = Heads(1, 1, 4)
    cache = PagedCache(device, heads, 1, NUM_PAGES, PAGE_SIZE)
    tables = op.rope_tables(device, THETA, 0, 16)
    segment = Segment(9, 9, (3, 1, 7))
    qkv = 1e4 * shapes.generator("large").standard_normal((9, heads.qkv_width))
    qkv = op.as_activation(device, qkv)
    positions = segment.positions()
    query = cache.store(
        qkv, positions, cache.slots(segment, positions), Norms(None, None), tables, 0
    )
    actual = cache.attend(query, [segment])
    expected = causal_attention(*turned(heads, qkv, positions, Norms(None, None), 0))
    assert relative_l2(actual, expected.reshape(actual.shape)) <= calls.tolerance(device)


def test_decode_rows_before_a_prefill_chunk(device):
    heads = Heads(6, 2, 64)
    cache = PagedCache(device, heads, 1, NUM_PAGES, PAGE_SIZE)
    tables = op.rope_tables(device, THETA, 32, 128)
    norm = norms(heads, True)
    segments = pages_of([(12, 1), (6, 1), (5, 8)], 2, cache.page_size)
    queries = []
    for number, segment in enumerate(segments):
        rng = shapes.generator("decode", number)
        qkv = rng.standard_normal((segment.context_length, heads.qkv_width))
        positions = np.arange(segment.context_length)
        query = cache.store(qkv, positions, cache.slots(segment, positions), norm, tables, 32)
        queries.append(query[-segment.num_new_tokens :])
    together = cache.attend(np.concatenate(queries), segments, num_decode=2)
    apart = [
        cache.attend(query, [segment], num_decode=int(number < 2))
        for number, (query, segment) in enumerate(zip(queries, segments, strict=True))
    ]
    np.testing.assert_array_equal(together, np.concatenate(apart))
