"""Linear layers, FP8 or plain, with the inputs of row-parallel layers quantised by rank slice."""

from dataclasses import dataclass

import numpy as np

from tests.reference import fp8
from tests.reference.variants import Variant


@dataclass(frozen=True)
class Linear:
    """weight [out, in] in the model's precision; quantised says whether inputs become FP8."""

    weight: np.ndarray
    bias: np.ndarray | None
    quantised: bool


def bf16(values: np.ndarray) -> np.ndarray:
    """Round float32 to BF16 (nearest, ties to even), kept as float32."""
    bits = np.asarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


def wrongly_quantised(rows: np.ndarray, variant: Variant) -> np.ndarray:
    rows = np.asarray(rows, dtype=np.float32)
    scales = fp8.token_scales(rows)
    if variant is Variant.BF16_ACTIVATION_SCALE:
        scales = bf16(scales)
        quotients = rows / scales
    else:
        quotients = rows * (np.float32(1.0) / scales)
    return fp8.dequantise(fp8.encode(quotients), scales)


def through_fp8(rows: np.ndarray, variant: Variant = Variant.CORRECT) -> np.ndarray:
    """Quantise each row and decode it again, in the dtype of rows."""
    if variant is Variant.NO_ACTIVATION_QUANTISATION:
        return rows
    if variant in (Variant.RECIPROCAL_ACTIVATION_SCALE, Variant.BF16_ACTIVATION_SCALE):
        return wrongly_quantised(rows, variant).astype(rows.dtype)
    return fp8.dequantise(*fp8.quantise_per_token(rows)).astype(rows.dtype)


def by_rank_slice(rows: np.ndarray, world_size: int, variant: Variant) -> np.ndarray:
    """Each of world_size equal column slices is quantised with scales of its own."""
    if rows.shape[-1] % world_size:
        raise ValueError(f"width {rows.shape[-1]} does not split over {world_size} ranks")
    pieces = np.split(rows, world_size, axis=-1)
    return np.concatenate([through_fp8(piece, variant) for piece in pieces], axis=-1)


def apply(
    linear: Linear, rows: np.ndarray, world_size: int = 1, variant: Variant = Variant.CORRECT
) -> np.ndarray:
    """[tokens, in] → [tokens, out]; world_size > 1 for row-parallel layers only."""
    inputs = by_rank_slice(rows, world_size, variant) if linear.quantised else rows
    outputs = inputs @ linear.weight.T
    if linear.bias is None or variant is Variant.ATTENTION_BIAS_IGNORED:
        return outputs
    return outputs + linear.bias
