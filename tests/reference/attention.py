"""Grouped causal attention, dense and through page tables."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.variants import Variant


@dataclass(frozen=True)
class AttentionRow:
    """One sequence of a ragged batch: its new tokens follow num_cached_tokens older ones."""

    num_cached_tokens: int
    num_new_tokens: int
    page_table: Sequence[int]

    @property
    def context_length(self) -> int:
        return self.num_cached_tokens + self.num_new_tokens


def softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return shifted / np.sum(shifted, axis=-1, keepdims=True)


def key_head_of(num_heads: int, num_kv_heads: int, variant: Variant) -> np.ndarray:
    """Key head of each query head: h // group."""
    heads = np.arange(num_heads)
    if variant is Variant.INTERLEAVED_HEAD_GROUPS:
        return heads % num_kv_heads
    return heads // (num_heads // num_kv_heads)


def causal_mask(num_queries: int, num_keys: int, variant: Variant) -> np.ndarray:
    """True where the query may look; queries are the last num_queries of num_keys positions."""
    query_positions = np.arange(num_keys - num_queries, num_keys)[:, None]
    key_positions = np.arange(num_keys)[None, :]
    visible = key_positions <= query_positions
    if variant is Variant.SKIPS_OLDEST_KEY:
        visible &= (key_positions > 0) | (query_positions == 0)
    return visible


def causal_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    variant: Variant = Variant.CORRECT,
) -> np.ndarray:
    """queries [new, heads, dim], keys and values [context, kv_heads, dim] → [new, heads, dim]."""
    num_queries, num_heads, head_dim = queries.shape
    key_head = key_head_of(num_heads, keys.shape[1], variant)
    scores = np.einsum("qhd,khd->hqk", queries, keys[:, key_head]) * head_dim**-0.5
    visible = causal_mask(num_queries, len(keys), variant)
    scores = np.where(visible, scores, -np.inf)
    return np.einsum("hqk,khd->qhd", softmax(scores), values[:, key_head]).astype(queries.dtype)


def slots(page_table: Sequence[int], page_size: int, length: int) -> np.ndarray:
    """Slot (page * page_size + offset) of each of the first length positions."""
    needed = -(-length // page_size)
    if len(page_table) < needed:
        raise ValueError(f"{length} positions need {needed} pages, got {len(page_table)}")
    positions = np.arange(length)
    pages = np.asarray(page_table, dtype=np.int64)[positions // page_size]
    return pages * page_size + positions % page_size


def paged_attention(
    queries: np.ndarray,
    key_slots: np.ndarray,
    value_slots: np.ndarray,
    rows: list[AttentionRow],
    page_size: int,
) -> np.ndarray:
    """queries [tokens, heads, dim] of all rows in order, caches [slots, kv_heads, dim]."""
    num_tokens = sum(row.num_new_tokens for row in rows)
    if num_tokens != len(queries):
        raise ValueError(f"rows hold {num_tokens} tokens, queries {len(queries)}")
    outputs = np.zeros_like(queries)
    first = 0
    for row in rows:
        last = first + row.num_new_tokens
        at = slots(row.page_table, page_size, row.context_length)
        if row.num_new_tokens:
            outputs[first:last] = causal_attention(
                queries[first:last], key_slots[at], value_slots[at]
            )
        first = last
    return outputs
