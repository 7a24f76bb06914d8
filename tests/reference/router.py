"""Sigmoid router: the bias chooses, the unbiased sigmoids of the chosen weigh."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.attention import softmax
from tests.reference.variants import Variant

SUM_EPSILON = 1e-20


@dataclass(frozen=True)
class Routes:
    """experts [tokens, k] by falling choice score, their weights, and the margin to the next."""

    experts: np.ndarray
    weights: np.ndarray
    margins: np.ndarray


def scores_of(logits: np.ndarray, variant: Variant) -> np.ndarray:
    if variant is Variant.SOFTMAX_ROUTER:
        return softmax(logits)
    return 1.0 / (1.0 + np.exp(-logits))


def selection_margins(choice: np.ndarray, experts: np.ndarray) -> np.ndarray:
    """Choice score of the k-th less that of the best not chosen; infinite if all are chosen."""
    chosen = np.take_along_axis(choice, experts, axis=-1)
    rest = choice.copy()
    np.put_along_axis(rest, experts, -np.inf, axis=-1)
    return np.min(chosen, axis=-1) - np.max(rest, axis=-1)


def route(
    hidden: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    experts_per_token: int,
    routed_scaling_factor: float,
    normalise: bool = True,
    variant: Variant = Variant.CORRECT,
    other_rows: Sequence[int] = (),
) -> Routes:
    """hidden [tokens, hidden_size], weight [experts, hidden_size], bias [experts].

    other_rows: tokens whose k-th choice gives way to the best expert not chosen.
    """
    scores = scores_of(hidden @ weight.T, variant)
    choice = scores if variant is Variant.NO_ROUTER_BIAS else scores + bias
    order = np.argsort(-choice, axis=-1, kind="stable")
    experts = order[:, :experts_per_token].copy()
    for row in other_rows:
        experts[row, -1] = order[row, experts_per_token]
    weighing = choice if variant is Variant.ROUTER_BIAS_IN_WEIGHTS else scores
    weights = np.take_along_axis(weighing, experts, axis=-1)
    if normalise and variant is not Variant.NO_TOP_K_NORMALISATION:
        weights = weights / (np.sum(weights, axis=-1, keepdims=True) + SUM_EPSILON)
    if variant is not Variant.ROUTED_SCALING_ONE:
        weights = weights * hidden.dtype.type(routed_scaling_factor)
    return Routes(experts, weights.astype(hidden.dtype), selection_margins(choice, experts))
