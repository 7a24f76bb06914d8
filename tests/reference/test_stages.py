"""Each numpy stage against a second, plainer formulation of the same mathematics."""

import numpy as np
import pytest

from tests.reference.attention import AttentionRow, causal_attention, paged_attention, slots
from tests.reference.experts import FeedForward, feed_forward, routed_experts
from tests.reference.linear import Linear
from tests.reference.norm import rms_norm
from tests.reference.rope import rotate
from tests.reference.router import route
from tests.shapes import (
    generator,
    head_layouts,
    matrices,
    positive_counts,
    ragged_batches,
    seed_note,
    shape_name,
)

PAGE_SIZE = 4


@pytest.mark.parametrize("shape", matrices(), ids=shape_name)
def test_norm_of_each_row_by_itself(shape):
    rows = generator("norm", *shape).standard_normal(shape)
    weight = np.linspace(0.5, 1.5, shape[1])
    expected = [weight * row / np.sqrt(row @ row / len(row) + 1e-5) for row in rows]
    result = rms_norm(rows, weight, 1e-5)
    assert result.shape == shape
    assert np.allclose(result, np.reshape(expected, shape), rtol=1e-12), seed_note()


def test_rope_is_a_rotation_of_complex_pairs():
    heads = generator("rope").standard_normal((5, 3, 16))
    positions = np.array([0, 1, 2, 100, 7])
    result = rotate(heads, positions, 1e4, 0.5)
    complex_pairs = heads[:, :, :4] + 1j * heads[:, :, 4:8]
    turns = np.exp(1j * positions[:, None] * 1e4 ** (-np.arange(4) / 4))
    expected = complex_pairs * turns[:, None, :]
    assert np.allclose(result[:, :, :4], expected.real)
    assert np.allclose(result[:, :, 4:8], expected.imag)
    assert np.array_equal(result[:, :, 8:], heads[:, :, 8:])
    assert np.array_equal(result[0], heads[0])


def attend_one(query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """One query head over all keys of its key head, with plain Python sums."""
    scores = [float(query @ key) / len(query) ** 0.5 for key in keys]
    weights = [np.exp(score - max(scores)) for score in scores]
    terms = (weight * value for weight, value in zip(weights, values, strict=True))
    return sum(terms) / sum(weights)


@pytest.mark.parametrize("layout", head_layouts(), ids=shape_name)
@pytest.mark.parametrize("num_tokens", positive_counts()[:2])
def test_attention_of_each_head_by_itself(layout, num_tokens):
    num_heads, num_kv_heads, head_dim = layout
    rng = generator("attention", *layout, num_tokens)
    queries = rng.standard_normal((num_tokens, num_heads, head_dim))
    keys, values = rng.standard_normal((2, num_tokens, num_kv_heads, head_dim))
    result = causal_attention(queries, keys, values)
    group = num_heads // num_kv_heads
    for token in range(num_tokens):
        for head in range(num_heads):
            seen = slice(0, token + 1), head // group
            expected = attend_one(queries[token, head], keys[seen], values[seen])
            assert np.allclose(result[token, head], expected), seed_note()


@pytest.mark.parametrize("batch", ragged_batches(), ids=lambda batch: f"{len(batch)}_rows")
def test_pages_in_any_order_give_what_contiguous_memory_gives(batch):
    rng = generator("pages", len(batch))
    pages_needed = [-(-(cached + new) // PAGE_SIZE) for cached, new in batch]
    order = rng.permutation(sum(pages_needed)).tolist()
    rows, expected, queries = [], [], [np.zeros((0, 6, 8))]
    key_slots, value_slots = rng.standard_normal((2, len(order) * PAGE_SIZE, 2, 8))
    for (cached, new), needed in zip(batch, pages_needed, strict=True):
        row = AttentionRow(cached, new, tuple(order[:needed]))
        order = order[needed:]
        rows.append(row)
        queries.append(rng.standard_normal((new, 6, 8)))
        at = slots(row.page_table, PAGE_SIZE, row.context_length)
        expected.append(causal_attention(queries[-1], key_slots[at], value_slots[at]))
    result = paged_attention(np.concatenate(queries), key_slots, value_slots, rows, PAGE_SIZE)
    wanted = np.concatenate(expected) if expected else np.zeros((0, 6, 8))
    assert np.array_equal(result, wanted), seed_note()


def test_too_few_pages_are_refused():
    with pytest.raises(ValueError, match="9 positions need 3 pages, got 2"):
        slots((0, 1), PAGE_SIZE, 9)


def test_router_bias_chooses_and_does_not_weigh():
    hidden, weight = np.eye(4)[:1], np.array([[2.0, 0, 0, 0], [1.0, 0, 0, 0], [0.0, 0, 0, 0]])
    routes = route(hidden, weight, np.array([0.0, 0.0, 5.0]), 2, 2.5)
    sigmoid = 1 / (1 + np.exp(-np.array([2.0, 0.0])))
    assert routes.experts.tolist() == [[2, 0]]
    assert np.allclose(routes.weights[0], 2.5 * sigmoid[::-1] / sigmoid.sum())
    assert np.allclose(routes.margins, 1 / (1 + np.exp(-2.0)) - 1 / (1 + np.exp(-1.0)))


def test_router_ties_go_to_the_lower_expert():
    routes = route(np.zeros((2, 3)), np.zeros((5, 3)), np.zeros(5), 2, 1.0)
    assert routes.experts.tolist() == [[0, 1], [0, 1]]
    assert np.allclose(routes.weights, 0.5)
    assert routes.margins.tolist() == [0.0, 0.0]


def plain_expert(rng: np.random.Generator, hidden: int, width: int) -> FeedForward:
    shapes = ((width, hidden), (width, hidden), (hidden, width))
    return FeedForward(*(Linear(rng.standard_normal(shape), None, False) for shape in shapes))


def test_routed_experts_are_weighted_sums_of_single_experts():
    rng = generator("experts")
    experts = [plain_expert(rng, 7, 5) for _ in range(4)]
    rows = rng.standard_normal((9, 7))
    routes = route(rows, rng.standard_normal((4, 7)), rng.standard_normal(4), 3, 1.5)
    result = routed_experts(experts, rows, routes)
    for token, row in enumerate(rows):
        terms = (
            weight * feed_forward(experts[expert], row[None])[0]
            for expert, weight in zip(routes.experts[token], routes.weights[token], strict=True)
        )
        assert np.allclose(result[token], sum(terms)), seed_note()


def test_no_tokens_give_no_rows():
    rng = generator("none")
    experts = [plain_expert(rng, 7, 5) for _ in range(2)]
    routes = route(np.zeros((0, 7)), np.ones((2, 7)), np.zeros(2), 1, 1.0)
    assert routed_experts(experts, np.zeros((0, 7)), routes).shape == (0, 7)
