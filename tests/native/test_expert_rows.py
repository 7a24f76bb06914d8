"""The check of expert rows itself: it takes what a sound device answers and no mistake."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16, encode_bf16
from glm_engine.verify.device import FP8
from tests import shapes
from tests.native import calls
from tests.native.expert_rows import (
    TENSOR_CORE_ERROR,
    ExactStack,
    assert_rows,
    exact_stack,
    expected_rows,
)
from tests.reference import fp8
from tests.reference.experts import FeedForward, routed_experts, silu
from tests.reference.linear import Linear, through_fp8
from tests.reference.router import Routes

SIZES = [(33, 16, 64, 48, 8), (65, 5, 65, 37, 2), (5, 4, 256, 256, 4)]
LIMIT = calls.BF16_TOLERANCE


@dataclass(frozen=True)
class Problem:
    stack: ExactStack
    values: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    def expected(self):
        return expected_rows(
            self.stack, self.values, self.ids, self.weights, FP8, TENSOR_CORE_ERROR
        )


@cache
def drawn(size) -> Problem:
    num_tokens, num_experts, hidden, width, top_k = size
    rng = shapes.generator("expert rows", *size)
    gate_up = rng.standard_normal((num_experts, 2 * width, hidden)) / np.sqrt(hidden)
    down = rng.standard_normal((num_experts, hidden, width)) / np.sqrt(width)
    ids = np.array([rng.permutation(num_experts)[:top_k] for _ in range(num_tokens)])
    values = decode_bf16(encode_bf16(rng.standard_normal((num_tokens, hidden))))
    return Problem(exact_stack(gate_up, down, FP8), values, ids, rng.uniform(0.1, 1, ids.shape))


def with_noise(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    spread = np.sqrt(np.mean(rows**2, axis=1, keepdims=True))
    return rows + TENSOR_CORE_ERROR * spread * rng.standard_normal(rows.shape)


def encoded(hidden: np.ndarray) -> np.ndarray:
    return through_fp8(hidden)


def answer(given: Problem, encode=encoded, seed: int = 0) -> np.ndarray:
    """Rows of a device whose products have the tensor core's error and whose output is BF16."""
    rng = shapes.generator("device", seed)
    inputs = through_fp8(given.values.astype(np.float64))
    rows = np.zeros(inputs.shape)
    for expert in np.unique(given.ids):
        tokens, choices = np.nonzero(given.ids == expert)
        product = inputs[tokens] @ given.stack.exact_gate_up[expert].T
        gate, up = (with_noise(part, rng) for part in np.split(product, 2, axis=1))
        down = encode(silu(gate) * up) @ given.stack.exact_down[expert].T
        rows[tokens] += given.weights[tokens, choices, None] * down
    return decode_bf16(encode_bf16(rows))


def wrong_expert(given: Problem) -> np.ndarray:
    ids = given.ids.copy()
    unused = np.setdiff1d(np.arange(len(given.stack.exact_down)), ids[0])
    ids[0, 0] = unused[0] if len(unused) else ids[0, 1]
    return answer(replace(given, ids=ids))


def missing_weight(given: Problem) -> np.ndarray:
    weights = given.weights.copy()
    weights[np.unravel_index(np.argmin(weights), weights.shape)] = 1.0
    return answer(replace(given, weights=weights))


def missing_choice(given: Problem) -> np.ndarray:
    weights = given.weights.copy()
    weights[0, 0] = 0.0
    return answer(replace(given, weights=weights))


def unquantised_hidden(given: Problem) -> np.ndarray:
    return answer(given, lambda hidden: hidden)


def scale_of_a_neighbour(given: Problem) -> np.ndarray:
    def encode(hidden):
        codes, scale = fp8.quantise_per_token(hidden)
        return fp8.dequantise(codes, np.roll(scale, 1, axis=0))

    return answer(given, encode)


def missing_channel(given: Problem) -> np.ndarray:
    def encode(hidden):
        rows = through_fp8(hidden)
        rows[:, rows.shape[1] // 2] = 0
        return rows

    return answer(given, encode)


def rounded_down(given: Problem) -> np.ndarray:
    def encode(hidden):
        codes, scale = fp8.quantise_per_token(hidden)
        below = np.abs(fp8.decode(codes)) > np.abs(hidden / scale)
        return fp8.dequantise(codes - below.astype(np.uint8), scale)

    return answer(given, encode)


MISTAKES = [
    wrong_expert,
    missing_weight,
    missing_choice,
    unquantised_hidden,
    scale_of_a_neighbour,
    missing_channel,
    rounded_down,
]


@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_expected_rows_are_those_of_the_reference(size):
    given = drawn(size)
    layers = [
        FeedForward(*(Linear(part, None, True) for part in (*np.split(gate_up, 2), down)))
        for gate_up, down in zip(given.stack.exact_gate_up, given.stack.exact_down, strict=True)
    ]
    routes = Routes(given.ids, given.weights, np.zeros(0))
    wanted = routed_experts(layers, given.values.astype(np.float64), routes)
    np.testing.assert_allclose(given.expected().values, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_a_sound_answer_is_taken(size, seed):
    given = drawn(size)
    assert_rows(answer(given, seed=seed), given.expected(), LIMIT)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_a_mistake_is_not_taken(size, mistake):
    given = drawn(size)
    with pytest.raises(AssertionError, match="relative L2 above"):
        assert_rows(mistake(given), given.expected(), LIMIT)


@pytest.mark.parametrize("size", SIZES, ids=shapes.shape_name)
def test_a_step_away_from_every_border_is_not_taken(size):
    """A value one code off that lies in the middle between two borders."""
    given = drawn(size)
    moved = replace(given, ids=given.ids[:1], weights=given.weights[:1], values=given.values[:1])

    def encode(hidden):
        codes, scale = fp8.quantise_per_token(hidden)
        middle = np.abs(np.abs(hidden / scale) - np.abs(fp8.decode(codes)))
        chosen = np.argmin(np.where(np.abs(hidden) > np.max(np.abs(hidden)) / 2, middle, np.inf))
        codes[0, chosen] -= 1
        return fp8.dequantise(codes, scale)

    with pytest.raises(AssertionError, match="relative L2 above"):
        assert_rows(answer(moved, encode), moved.expected(), LIMIT)


def test_one_step_of_the_list_is_forgiven_once():
    expected = drawn(SIZES[0]).expected()
    sizes = [abs(step.size) * np.linalg.norm(step.column) for step in expected.steps]
    step = expected.steps[int(np.argmax(sizes))]
    rows = expected.values.copy()
    rows[step.token] += step.size * step.column
    assert_rows(rows, expected, LIMIT)
    for wrong in (replace(expected, steps=()), expected.plus(-(rows - expected.values))):
        with pytest.raises(AssertionError, match="relative L2 above"):
            assert_rows(rows, wrong, LIMIT)
