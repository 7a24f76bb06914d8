"""E4M3 codes of a cache: keys of a page are [head_dim][page_size] and values
[page_size][head_dim], or both have the order of native/kernels/layout.hpp."""

import numpy as np

from glm_engine.verify.paging import PagedCache

HALF_BYTES = 128
BLOCK_TOKENS = 16
CHUNK_BYTES = 16


def stored_codes(cache: PagedCache, layer: int) -> np.ndarray:
    """Cached codes as [k or v][slot][kv_head][head_dim, padded in tiles]."""
    num_pages, num_kv_heads = cache.struct.num_pages, cache.heads.num_kv_heads
    if not cache.device.facts.packs_tiles:
        pages = cache.contents()[:, layer].reshape(num_pages, num_kv_heads, 2, -1)
        keys = pages[:, :, 0].reshape(*pages.shape[:2], -1, cache.page_size)
        values = pages[:, :, 1].reshape(*pages.shape[:2], cache.page_size, -1)
        ordered = keys.transpose(0, 3, 1, 2), values.transpose(0, 2, 1, 3)
        return np.stack(ordered).reshape(2, -1, num_kv_heads, cache.heads.head_dim)
    num_blocks = cache.page_size // BLOCK_TOKENS
    shape = (num_pages, num_kv_heads, num_blocks, 2, -1, BLOCK_TOKENS, HALF_BYTES)
    stored = cache.contents()[:, layer].reshape(shape)
    straight = np.take_along_axis(stored, turned_places(stored.shape), axis=-1)
    ordered = straight.transpose(3, 0, 2, 5, 1, 4, 6)
    return ordered.reshape(2, num_pages * cache.page_size, num_kv_heads, -1)


def put_codes(cache: PagedCache, layer: int, codes: np.ndarray) -> None:
    """What stored_codes gives, the other way."""
    num_pages, num_kv_heads = cache.struct.num_pages, cache.heads.num_kv_heads
    pages = cache.contents()
    if not cache.device.facts.packs_tiles:
        shape = (2, num_pages, cache.page_size, num_kv_heads, -1)
        keys, values = codes[..., : cache.heads.head_dim].reshape(shape)
        ordered = keys.transpose(0, 2, 3, 1), values.transpose(0, 2, 1, 3)
        parts = [part.reshape(num_pages, num_kv_heads, -1) for part in ordered]
        pages[:, layer] = np.stack(parts, axis=2).reshape(num_pages, -1)
        cache.fill(pages)
        return
    num_blocks = cache.page_size // BLOCK_TOKENS
    shape = (2, num_pages, num_blocks, BLOCK_TOKENS, num_kv_heads, -1, HALF_BYTES)
    straight = codes.reshape(shape).transpose(1, 4, 2, 0, 5, 3, 6)
    turned = np.take_along_axis(straight, turned_places(straight.shape), axis=-1)
    pages[:, layer] = turned.reshape(num_pages, -1)
    cache.fill(pages)


def turned_places(shape: tuple[int, ...]) -> np.ndarray:
    token, byte = np.ogrid[:BLOCK_TOKENS, :HALF_BYTES]
    return np.broadcast_to(byte ^ token % 8 * CHUNK_BYTES, shape)
