"""Partial rotary embedding with half-split pairs (j, j + R/2), R = int(head_dim * factor)."""

import numpy as np

from tests.reference.variants import Variant


def rotary_width(head_dim: int, partial_rotary_factor: float) -> int:
    return int(head_dim * partial_rotary_factor)


def angles(positions: np.ndarray, width: int, theta: float) -> np.ndarray:
    """float64 [tokens, width / 2]: position * theta ** (-2j / width)."""
    exponents = -np.arange(0, width, 2, dtype=np.float64) / width
    return np.asarray(positions, dtype=np.float64)[:, None] * theta**exponents


def pair_columns(width: int, variant: Variant) -> tuple[np.ndarray, np.ndarray]:
    if variant is Variant.INTERLEAVED_ROPE:
        return np.arange(0, width, 2), np.arange(1, width, 2)
    half = width // 2
    return np.arange(half), np.arange(half, width)


def rotate(
    heads: np.ndarray,
    positions: np.ndarray,
    theta: float,
    partial_rotary_factor: float,
    variant: Variant = Variant.CORRECT,
) -> np.ndarray:
    """[tokens, heads, head_dim] turned by each token's position; other dimensions pass."""
    head_dim = heads.shape[-1]
    factor = 1.0 if variant is Variant.FULL_ROTATION else partial_rotary_factor
    width = rotary_width(head_dim, factor)
    angle = angles(positions, width, theta)[:, None, :]
    cosine, sine = np.cos(angle).astype(heads.dtype), np.sin(angle).astype(heads.dtype)
    first, second = pair_columns(width, variant)
    turned = heads.copy()
    turned[:, :, first] = heads[:, :, first] * cosine - heads[:, :, second] * sine
    turned[:, :, second] = heads[:, :, second] * cosine + heads[:, :, first] * sine
    return turned
