"""Prompt rows over a cache of E4M3 codes, q and weights in FP16: heads, pages, chunks and NaN."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8
from glm_engine.verify.paging import NO_SCALES, Heads, HeadScales, PagedCache, Segment
from tests import shapes
from tests.devices import device_kind
from tests.native import calls
from tests.native.codes import HALF_BYTES, put_codes
from tests.reference import fp8
from tests.reference.attention import causal_attention
from tests.reference.compare import relative_l2

NUM_LAYERS = 2
LAYER = 1
GROUPS = [Heads(group, 1, 128) for group in (1, 2, 3, 5, 12, 16)]
HEAD_DIMS = [Heads(6, 2, size) for size in (1, 7, 10, 32, 63, 64, 65, 128, 129, 192, 193, 256)]
AIR = Heads(24, 2, 128)
PAGE_SIZES = (16, 32, 48, 64, 128)
RAGGED = ((1, 1), (13, 13), (129, 65), (300, 129))
if device_kind() == "cuda":
    RAGGED += ((1281, 130), (4096, 1))
CHUNKED = [Heads(12, 1, 128), Heads(2, 2, 64), Heads(3, 1, 256), Heads(5, 1, 129)]
CHUNK_SIZES = (129, 64, 23, 1)
CHUNKED_LENGTH = 300
MANY_SEGMENTS = 600
LEAST_NORMAL_CODE = 8
PAST_F16 = 2.0**16
ROW_TILE = 128
MOST_BLOCKS = 132
MANY_ITEMS = ((2400, 300), (1300, 200), (500, 200))


@dataclass(frozen=True)
class Work:
    """Segments of (context, new tokens) over pages of their own in a shuffled pool."""

    heads: Heads
    batch: Sequence[tuple[int, int]] = RAGGED
    page_size: int = 16
    scales: HeadScales = NO_SCALES
    greatest_code: int = fp8.NAN_CODE - 1

    @property
    def num_pages(self) -> int:
        return 1 + sum(-(-length // self.page_size) for length, _ in self.batch)

    def segments(self) -> list[Segment]:
        order = shapes.generator("prompt pages").permutation(self.num_pages).tolist()
        return [
            Segment(length, new, tuple(order.pop() for _ in range(-(-length // self.page_size))))
            for length, new in self.batch
        ]

    def drawn_codes(self, *key) -> np.ndarray:
        """Codes for every slot, of normal values where greatest_code is the greatest of all."""
        rng = shapes.generator("prompt codes", self.heads.head_dim, *key)
        shape = (2, self.num_pages * self.page_size, self.heads.num_kv_heads, self.heads.head_dim)
        codes = fp8.encode(rng.standard_normal(shape))
        magnitudes = codes & ~np.uint8(fp8.SIGN_BIT)
        return (codes & fp8.SIGN_BIT) | (magnitudes % (self.greatest_code + 1)).astype(np.uint8)

    def queries(self, device) -> np.ndarray:
        num_rows = sum(new for _, new in self.batch)
        rng = shapes.generator("prompt queries", num_rows)
        width = self.heads.num_heads * self.heads.head_dim
        return op.as_activation(device, rng.standard_normal((num_rows, width)))

    def wanted(self, queries, codes, slots) -> np.ndarray:
        """float64 attention of a segment's rows over the codes times their scales."""
        key, value = (
            fp8.decode(part[slots]) * (1 if scale is None else scale[LAYER][:, None])
            for part, scale in zip(codes, (self.scales.key, self.scales.value), strict=True)
        )
        rows = queries.astype(np.float64).reshape(len(queries), -1, self.heads.head_dim)
        return causal_attention(rows, key, value).reshape(queries.shape)


def drawn_scales(heads: Heads) -> HeadScales:
    rng = shapes.generator("prompt scales", heads.num_kv_heads)
    shape = (NUM_LAYERS, heads.num_kv_heads)
    key, value = (2 ** rng.uniform(-4, 1, shape) for _ in range(2))
    return HeadScales(key.astype(np.float32), value.astype(np.float32))


def cache_of(device, work: Work, codes: np.ndarray, live: np.ndarray) -> PagedCache:
    """NaN in every slot that is not `live`, and in the other layer; zeros behind head_dim."""
    cache = PagedCache(
        device, work.heads, NUM_LAYERS, work.num_pages, work.page_size, FP8, work.scales
    )
    padded = -(-work.heads.head_dim // HALF_BYTES) * HALF_BYTES
    stored = np.zeros((*codes.shape[:3], padded), np.uint8)
    stored[:, :, :, : codes.shape[3]] = codes
    dead = np.full_like(stored, fp8.NAN_CODE)
    put_codes(cache, 1 - LAYER, dead)
    put_codes(cache, LAYER, np.where(live[None, :, None, None], stored, dead))
    return cache


def live_slots(work: Work, segments: list[Segment]) -> np.ndarray:
    live = np.zeros(work.num_pages * work.page_size, bool)
    for segment in segments:
        live[slots_of(work, segment)] = True
    return live


def slots_of(work: Work, segment: Segment) -> np.ndarray:
    position = np.arange(segment.context_length)
    pages = np.asarray(segment.page_table)[position // work.page_size]
    return pages * work.page_size + position % work.page_size


def rows_of(work: Work) -> list[slice]:
    ends = np.cumsum([new for _, new in work.batch])
    return [slice(end - new, end) for end, (_, new) in zip(ends, work.batch, strict=True)]


def assert_attended(device, work: Work, num_decode=0) -> None:
    segments, codes, queries = work.segments(), work.drawn_codes(), work.queries(device)
    cache = cache_of(device, work, codes, live_slots(work, segments))
    actual = cache.attend(queries, segments, num_decode, LAYER)
    for segment, rows in zip(segments, rows_of(work), strict=True):
        if segment.num_new_tokens == 0:
            continue
        wanted = work.wanted(queries[rows], codes, slots_of(work, segment))
        assert relative_l2(actual[rows], wanted) <= calls.tolerance(device), segment


@pytest.mark.parametrize("heads", [*GROUPS, *HEAD_DIMS, AIR], ids=str)
def test_groups_and_heads(device, heads):
    assert_attended(device, Work(heads, scales=drawn_scales(heads)))


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("heads", [AIR, Heads(3, 3, 200)], ids=str)
def test_page_sizes(device, heads, page_size):
    assert_attended(device, Work(heads, page_size=page_size))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 127, 128, 129, 255, 256, 257, 1000])
def test_whole_prompts(device, length):
    assert_attended(device, Work(GROUPS[4], ((length, length),)))


def test_behind_decode_rows(device):
    batch = ((700, 1), (1, 1), (300, 1), (300, 129), (65, 64))
    assert_attended(device, Work(AIR, batch, scales=drawn_scales(AIR)), num_decode=3)


def test_more_segments_than_a_launch_takes(device):
    batch = tuple((1 + i % 41, 1 + (i % 41 > 0)) for i in range(MANY_SEGMENTS // 2))
    batch += tuple((i % 37 + 1, 1) for i in range(MANY_SEGMENTS // 2))
    assert_attended(device, Work(Heads(2, 1, 64), batch))


@pytest.mark.skipif(device_kind() != "cuda", reason="items of a GPU: --device-kind cuda runs it")
@pytest.mark.parametrize("heads", [Heads(48, 4, 128), Heads(60, 20, 192)], ids=str)
def test_more_items_than_a_device_takes_at_once(device, heads):
    """A block goes from item to item, each of more key tiles than it looks pages up for at once."""
    group = heads.num_heads // heads.num_kv_heads
    row_tiles = sum(-(-new * group // ROW_TILE) for _, new in MANY_ITEMS)
    assert row_tiles * heads.num_kv_heads > 2 * MOST_BLOCKS
    assert_attended(device, Work(heads, MANY_ITEMS, scales=drawn_scales(heads)))


def test_a_segment_of_no_rows_amid_others(device):
    assert_attended(device, Work(AIR, ((140, 40), (133, 0), (129, 129))))


def test_codes_below_the_least_normal_one(device):
    """Every code is below 2⁻⁶; the scale of the keys makes their scores matter."""
    heads = Heads(12, 1, 128)
    scales = HeadScales(np.full((NUM_LAYERS, 1), 512, np.float32), None)
    assert_attended(device, Work(heads, scales=scales, greatest_code=LEAST_NORMAL_CODE - 1))


@pytest.mark.parametrize("heads", [Heads(1, 1, 256), Heads(2, 2, 128), Heads(4, 4, 64)], ids=str)
def test_every_code_alone_comes_back(device, heads):
    """A row that attends to one token gives its values, exact in FP16 and BF16: NaN is NaN."""
    work = Work(heads, ((1, 1),))
    (segment,) = work.segments()
    codes = work.drawn_codes()
    slots = slots_of(work, segment)
    codes[1, slots] = np.arange(256, dtype=np.uint8).reshape(1, heads.num_kv_heads, -1)
    cache = cache_of(device, work, codes, live_slots(work, [segment]))
    actual = cache.attend(work.queries(device), [segment], 0, LAYER)
    np.testing.assert_array_equal(actual[0], fp8.ALL_VALUES.astype(np.float32))


def test_queries_past_the_greatest_of_fp16_are_that(device):
    work = Work(Heads(12, 1, 128), ((150, 40),))
    segments, codes, queries = work.segments(), work.drawn_codes(), work.queries(device)
    cache = cache_of(device, work, codes, live_slots(work, segments))
    large = np.copysign(PAST_F16, queries[:, ::5])
    queries[:, ::5] = large
    found = cache.attend(queries, segments, 0, LAYER)
    queries[:, ::5] = large * PAST_F16
    assert np.all(np.isfinite(found))
    np.testing.assert_array_equal(cache.attend(queries, segments, 0, LAYER), found)


def test_a_key_that_is_nan_reaches_the_rows_from_it_on(device):
    work, place = Work(Heads(12, 1, 128), ((200, 200),)), 77
    (segment,) = work.segments()
    queries, codes = work.queries(device), work.drawn_codes()
    live = live_slots(work, [segment])
    clean = cache_of(device, work, codes, live).attend(queries, [segment], 0, LAYER)
    codes[0, slots_of(work, segment)[place], 0, 5] = fp8.NAN_CODE | fp8.SIGN_BIT
    actual = cache_of(device, work, codes, live).attend(queries, [segment], 0, LAYER)
    np.testing.assert_array_equal(actual[:place], clean[:place])
    assert np.all(np.isnan(actual[place:]))


@pytest.mark.parametrize("heads", CHUNKED, ids=str)
def test_chunks_have_the_bits_of_the_whole(device, heads):
    """What lies behind a chunk is NaN until its own chunk comes."""
    work = Work(heads, ((CHUNKED_LENGTH, CHUNKED_LENGTH),), scales=drawn_scales(heads))
    (segment,) = work.segments()
    queries, codes = work.queries(device), work.drawn_codes()

    def attended(begin, end):
        part = replace(segment, context_length=end, num_new_tokens=end - begin)
        cache = cache_of(device, work, codes, live_slots(work, [part]))
        return cache.attend(queries[begin:end], [part], 0, LAYER)

    whole = attended(0, CHUNKED_LENGTH)
    for size in CHUNK_SIZES:
        begins = range(0, CHUNKED_LENGTH, size)
        chunks = [attended(begin, min(begin + size, CHUNKED_LENGTH)) for begin in begins]
        np.testing.assert_array_equal(np.concatenate(chunks), whole, err_msg=str(size))


@pytest.mark.parametrize("heads", CHUNKED, ids=str)
def test_a_segment_alone_and_among_others(device, heads):
    work = Work(heads, scales=drawn_scales(heads))
    segments, queries, codes = work.segments(), work.queries(device), work.drawn_codes()
    cache = cache_of(device, work, codes, live_slots(work, segments))
    together = cache.attend(queries, segments, 0, LAYER)
    for segment, rows in zip(segments, rows_of(work), strict=True):
        alone = cache.attend(queries[rows], [segment], 0, LAYER)
        np.testing.assert_array_equal(alone, together[rows])
