"""SwiGLU feed-forward layers: dense, shared and routed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.linear import Linear, apply
from tests.reference.router import Routes
from tests.reference.variants import Variant


@dataclass(frozen=True)
class FeedForward:
    gate: Linear
    up: Linear
    down: Linear


def silu(values: np.ndarray) -> np.ndarray:
    return values / (1.0 + np.exp(-values))


def swiglu(gate: np.ndarray, up: np.ndarray, variant: Variant = Variant.CORRECT) -> np.ndarray:
    if variant is Variant.GATE_UP_SWAPPED:
        gate, up = up, gate
    return silu(gate) * up


def feed_forward(
    layer: FeedForward, rows: np.ndarray, world_size: int = 1, variant: Variant = Variant.CORRECT
) -> np.ndarray:
    """down(silu(gate x) * up x); the input of down is quantised by rank slice."""
    gate = apply(layer.gate, rows, variant=variant)
    up = apply(layer.up, rows, variant=variant)
    return apply(layer.down, swiglu(gate, up, variant), world_size, variant)


def routed_experts(
    experts: Sequence[FeedForward],
    rows: np.ndarray,
    routes: Routes,
    world_size: int = 1,
    variant: Variant = Variant.CORRECT,
) -> np.ndarray:
    """Σ weight · expert(row) over each row's experts; world_size > 1 when split by width."""
    outputs = np.zeros_like(rows)
    for expert in np.unique(routes.experts):
        tokens, choices = np.nonzero(routes.experts == expert)
        contribution = feed_forward(experts[expert], rows[tokens], world_size, variant)
        outputs[tokens] += routes.weights[tokens, choices, None] * contribution
    return outputs
