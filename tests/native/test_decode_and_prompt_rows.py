"""Where attention has one arithmetic, a row has the same bits as a decode row, a prompt row alone,
and amid a prompt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8
from glm_engine.verify.paging import NO_SCALES, Heads, HeadScales, Norms, PagedCache, Segment
from tests import shapes

CACHES = {"own": None, "fp8": FP8}
HEADS = [Heads(*layout) for layout in shapes.attention_heads()]
CONTEXTS = shapes.attention_contexts()
LENGTH = max(CONTEXTS)
CHUNK_SIZES = (2, 16, 65, 129, 300)
EVERY = 5
PAGE_SIZE = 16
NUM_LAYERS, LAYER = 2, 1
SPREAD = 3


@dataclass
class Tokens:
    """A cache of NaN whose slots are written token by token, and the queries of all tokens."""

    cache: PagedCache
    pages: Sequence[int]
    qkv: np.ndarray
    query: np.ndarray
    num_stored: int = 0

    def store_to(self, length: int) -> None:
        device, new = self.cache.device, slice(self.num_stored, length)
        positions = np.arange(self.num_stored, length)
        slots = self.cache.slots(Segment(length, len(positions), self.pages), positions)
        tables = op.rope_tables(device, 1e6, 0, 8)
        none = Norms(None, None)
        self.query[new] = self.cache.store(
            self.qkv[new], 0 * positions, slots, none, tables, 0, LAYER
        )
        self.num_stored = length

    def attend(self, parts: list[slice], num_decode: int = 0) -> np.ndarray:
        """The rows of some tokens, a part a segment, the first `num_decode` decode rows."""
        segments = [Segment(part.stop, part.stop - part.start, self.pages) for part in parts]
        query = np.concatenate([self.query[part] for part in parts])
        return self.cache.attend(query, segments, num_decode, LAYER)


def head_scales(heads: Heads) -> HeadScales:
    rng = shapes.generator("row kinds", "scales", heads.num_kv_heads)
    key, value = 2 ** rng.uniform(-4, 1, (2, NUM_LAYERS, heads.num_kv_heads))
    return HeadScales(key.astype(np.float32), value.astype(np.float32))


def tokens_of(device, heads: Heads, dtype: int | None, page_size: int = PAGE_SIZE) -> Tokens:
    """Tokens of magnitudes that differ by 64, so that the greatest score changes on the way."""
    num_pages = -(-LENGTH // page_size) + 3
    scales = NO_SCALES if dtype is None else head_scales(heads)
    cache = PagedCache(device, heads, NUM_LAYERS, num_pages, page_size, dtype, scales)
    cache.fill(np.full_like(cache.contents(), 0xFF))
    rng = shapes.generator("row kinds", heads.num_heads, heads.head_dim)
    magnitudes = 2.0 ** rng.uniform(-SPREAD, SPREAD, (LENGTH, 1))
    values = magnitudes * rng.standard_normal((LENGTH, heads.qkv_width))
    pages = tuple(rng.permutation(num_pages).tolist())
    query = np.full((LENGTH, heads.num_heads * heads.head_dim), np.nan, np.float32)
    return Tokens(cache, pages, op.as_activation(device, values), query)


def row(context: int) -> slice:
    """The last token of a context."""
    return slice(context - 1, context)


def rows_over_what_is_stored(tokens: Tokens) -> Iterator[tuple[str, slice, np.ndarray]]:
    """Rows of every context computed each way, with NaN in every slot behind the context."""
    for context in CONTEXTS:
        tokens.store_to(context)
        for num_decode, kind in enumerate(("prompt row", "decode row")):
            yield kind, row(context), tokens.attend([row(context)], num_decode)
        for size in CHUNK_SIZES:
            chunk = slice(max(0, context - size), context)
            yield f"chunk of {size}", chunk, tokens.attend([chunk])


def rows_of_one_step(tokens: Tokens) -> Iterator[tuple[str, slice, np.ndarray]]:
    """Decode rows, prompts of one row and chunks beside each other."""
    decode = [row(context) for context in range(1, LENGTH + 1, EVERY)]
    prompts = [*map(row, CONTEXTS), slice(37, 200), slice(700, LENGTH)]
    for parts, num_decode in ((decode, len(decode)), ([*decode[::9], *prompts], len(decode[::9]))):
        rows = tokens.attend(parts, num_decode)
        ends = np.cumsum([part.stop - part.start for part in parts])
        for part, each in zip(parts, np.split(rows, ends[:-1]), strict=True):
            yield f"among {len(parts)} segments", part, each


def assert_one_arithmetic(tokens: Tokens) -> None:
    computed = list(rows_over_what_is_stored(tokens))
    whole = tokens.attend([slice(0, LENGTH)])
    assert np.all(np.isfinite(whole))
    for kind, part, rows in (*computed, *rows_of_one_step(tokens)):
        message = f"{kind}, tokens {part.start} to {part.stop}"
        np.testing.assert_array_equal(rows.view(np.uint32), whole[part].view(np.uint32), message)


@pytest.fixture(autouse=True)
def one_attention(device):
    assert bool(device.info.has_one_attention) == device.facts.has_one_attention
    if not device.facts.has_one_attention:
        pytest.skip("decode rows of this device have bits of their own")


@pytest.mark.parametrize("dtype", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_a_row_has_one_arithmetic(device, heads, dtype):
    assert_one_arithmetic(tokens_of(device, heads, dtype))


@pytest.mark.parametrize("page_size", [1, 3, 48, 128])
def test_pages_of_other_sizes(device, page_size):
    page_size = device.page_size(page_size)
    assert_one_arithmetic(tokens_of(device, Heads(6, 2, 64), None, page_size))
