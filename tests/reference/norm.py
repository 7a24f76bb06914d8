"""RMSNorm: w * (x * rsqrt(mean(x²) + eps))."""

import numpy as np

from tests.reference.variants import Variant


def rms_norm(
    rows: np.ndarray, weight: np.ndarray, eps: float, variant: Variant = Variant.CORRECT
) -> np.ndarray:
    """Rows of shape (*, width) normalised over their last axis, in their own dtype."""
    mean_square = np.mean(rows * rows, axis=-1, keepdims=True)
    if variant is Variant.EPSILON_OUTSIDE_ROOT:
        root = np.sqrt(mean_square) + rows.dtype.type(eps)
    else:
        root = np.sqrt(mean_square + rows.dtype.type(eps))
    return weight * (rows / root)


def add_norm(
    residual: np.ndarray, delta: np.ndarray, weight: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """residual += delta, then its norm: returns (new residual, normalised)."""
    total = residual + delta
    return total, rms_norm(total, weight, eps)
