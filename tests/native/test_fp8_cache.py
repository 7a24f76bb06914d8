"""A cache of E4M3 codes with a scale for each layer and KV head: what is stored, and attention."""

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8, BackendError
from glm_engine.verify.paging import Heads, HeadScales, Norms, PagedCache, Segment
from tests import shapes
from tests.native import calls
from tests.native.codes import stored_codes
from tests.native.test_sequence import THETA, norms, turned
from tests.reference import fp8
from tests.reference.attention import causal_attention
from tests.reference.compare import relative_l2

NUM_LAYERS = 2
LAYER = 1
PAGE_SIZE = 16
HEADS = (Heads(24, 2, 128), Heads(3, 3, 80), Heads(5, 1, 10), Heads(6, 2, 256))
CHOICES = {
    "both": (True, True),
    "keys": (True, False),
    "values": (False, True),
    "none": (False, False),
}
LONG_BATCH = ((1500, 1), (40, 1), (1291, 6), (30, 30))


def head_scales(heads, chosen, least, most) -> HeadScales:
    """Scales between powers of two; None where they are not chosen."""
    rng = shapes.generator("head scales", heads.num_kv_heads, heads.head_dim)
    drawn = 2 ** rng.uniform(least, most, (2, NUM_LAYERS, heads.num_kv_heads))
    key, value = drawn.astype(np.float32)
    return HeadScales(key if chosen[0] else None, value if chosen[1] else None)


def fp8_cache(device, heads, scales, num_pages) -> PagedCache:
    return PagedCache(device, heads, NUM_LAYERS, num_pages, PAGE_SIZE, FP8, scales)


def draw_qkv(device, heads, num_tokens, *key):
    rng = shapes.generator("fp8 cache", num_tokens, heads.head_dim, *key)
    return op.as_activation(device, rng.standard_normal((num_tokens, heads.qkv_width)))


def codes_of(values, scales):
    """float64 [tokens, kv_heads, head_dim] → codes: float32 quotients, saturated, to nearest."""
    divisor = 1 if scales is None else scales[LAYER][:, None]
    return fp8.encode((values.astype(np.float32) / divisor).astype(np.float32))


def values_of(codes, scales):
    return fp8.dequantise(codes, 1 if scales is None else scales[LAYER][:, None])


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("num_tokens", [1, 37, 300])
def test_stored_codes(device, heads, chosen, num_tokens):
    scales = head_scales(heads, chosen, -10, 2)
    cache = fp8_cache(device, heads, scales, 20)
    slots = shapes.generator("slots", num_tokens).permutation(20 * PAGE_SIZE)[:num_tokens]
    qkv = draw_qkv(device, heads, num_tokens)
    tables = op.rope_tables(device, THETA, 0, 8)
    positions = np.zeros(num_tokens, np.int32)
    cache.store(qkv, positions, slots, Norms(None, None), tables, 0, LAYER)
    _, key, value = turned(heads, qkv, positions, Norms(None, None), 0)
    stored = stored_codes(cache, LAYER)[:, slots]
    np.testing.assert_array_equal(stored[0, :, :, : heads.head_dim], codes_of(key, scales.key))
    np.testing.assert_array_equal(stored[1, :, :, : heads.head_dim], codes_of(value, scales.value))
    assert not np.any(stored[:, :, :, heads.head_dim :])


@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_stored_codes_of_normed_and_turned_keys(device, heads):
    """But for one in 500 beside a border between two codes."""
    scales = head_scales(heads, (True, True), -6, 0)
    cache = fp8_cache(device, heads, scales, 20)
    slots = np.arange(20 * PAGE_SIZE, dtype=np.int32)
    qkv = draw_qkv(device, heads, len(slots))
    rotary_dim, norm = heads.head_dim // 4 * 2, norms(heads, True)
    tables = op.rope_tables(device, THETA, rotary_dim, len(slots))
    cache.store(qkv, slots, slots, norm, tables, rotary_dim, LAYER)
    _, key, value = turned(heads, qkv, slots, norm, rotary_dim)
    stored = stored_codes(cache, LAYER)[:, :, :, : heads.head_dim]
    expected = codes_of(key, scales.key)
    assert np.count_nonzero(stored[0] != expected) <= 1 + expected.size // 500
    np.testing.assert_array_equal(stored[1], codes_of(value, scales.value))


def segments_of(batch):
    """Segments with shuffled pages of their own, and the number of pages in all."""
    needed = [-(-length // PAGE_SIZE) for length, _ in batch]
    free = [int(page) for page in shapes.generator("fp8 pages").permutation(sum(needed))]
    ends = np.cumsum(needed)
    segments = [
        Segment(length, new, tuple(free[end - count : end]))
        for (length, new), count, end in zip(batch, needed, ends, strict=True)
    ]
    return segments, sum(needed)


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
@pytest.mark.parametrize("heads", HEADS, ids=str)
@pytest.mark.parametrize("num_decode", [0, 2])
def test_attention_over_codes(device, heads, chosen, num_decode):
    """Against float64 over the codes that the pages hold; contexts of one chunk and of more."""
    scales = head_scales(heads, chosen, -6, -1)
    segments, num_pages = segments_of(LONG_BATCH)
    cache = fp8_cache(device, heads, scales, num_pages)
    rotary_dim, norm = heads.head_dim // 4 * 2, norms(heads, True)
    tables = op.rope_tables(device, THETA, rotary_dim, 1500)
    queries = []
    for number, segment in enumerate(segments):
        positions = np.arange(segment.context_length)
        qkv = draw_qkv(device, heads, segment.context_length, number)
        slots = cache.slots(segment, positions)
        query = cache.store(qkv, positions, slots, norm, tables, rotary_dim, LAYER)
        queries.append(query[-segment.num_new_tokens :])
    codes = stored_codes(cache, LAYER)[:, :, :, : heads.head_dim]
    actual = cache.attend(np.concatenate(queries), segments, num_decode, LAYER)
    ends = np.cumsum([segment.num_new_tokens for segment in segments])
    for segment, query, rows in zip(segments, queries, np.split(actual, ends[:-1]), strict=True):
        slots = cache.slots(segment, np.arange(segment.context_length))
        wanted = causal_attention(
            query.astype(np.float64).reshape(len(query), -1, heads.head_dim),
            values_of(codes[0, slots], scales.key),
            values_of(codes[1, slots], scales.value),
        )
        assert relative_l2(rows, wanted.reshape(rows.shape)) <= calls.tolerance(device)


@pytest.mark.parametrize("num_decode", [0, 1])
def test_scales_of_one_are_those_of_none(device, num_decode):
    heads = HEADS[0]
    ones = np.ones((NUM_LAYERS, heads.num_kv_heads), np.float32)
    segments, num_pages = segments_of([(1500, 1)])
    positions = np.arange(1500)
    qkv = draw_qkv(device, heads, 1500)
    tables = op.rope_tables(device, THETA, 64, 1500)
    found = []
    for scales in (HeadScales(), HeadScales(ones, ones)):
        cache = fp8_cache(device, heads, scales, num_pages)
        slots = cache.slots(segments[0], positions)
        query = cache.store(qkv, positions, slots, norms(heads, True), tables, 64, LAYER)
        attended = cache.attend(query[-1:], segments, num_decode, LAYER)
        found.append((stored_codes(cache, LAYER)[:, slots], attended))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_scales_of_a_cache_that_holds_no_codes(device):
    heads = Heads(2, 1, 16)
    ones = np.ones((1, 1), np.float32)
    cache = PagedCache(device, heads, 1, 4, PAGE_SIZE, scales=HeadScales(ones, None))
    tables = op.rope_tables(device, THETA, 0, 8)
    qkv = np.zeros((1, heads.qkv_width))
    with pytest.raises(BackendError, match="key_scale and value_scale: expected null"):
        cache.store(qkv, [0], [0], Norms(None, None), tables, 0)
