"""FP8 E4M3 (no infinities, one NaN per sign, largest value 448), from its definition.

Values are decoded from sign, exponent and mantissa; encoding searches the table of
midpoints between neighbours, so it shares no bit manipulation with any engine.
"""

import math

import numpy as np

LARGEST = 448.0
NAN_CODE = 0x7F
SIGN_BIT = 0x80
EXPONENT_BIAS = 7
MANTISSA_STEPS = 8
ZERO_ROW_SCALE = np.finfo(np.float32).eps


def decode_code(code: int) -> float:
    """The value of one code, 0 to 255."""
    sign = -1.0 if code & SIGN_BIT else 1.0
    exponent, mantissa = divmod(code & ~SIGN_BIT, MANTISSA_STEPS)
    if code & ~SIGN_BIT == NAN_CODE:
        return math.copysign(math.nan, sign)
    if exponent == 0:
        return sign * mantissa / MANTISSA_STEPS * 2.0 ** (1 - EXPONENT_BIAS)
    return sign * (1.0 + mantissa / MANTISSA_STEPS) * 2.0 ** (exponent - EXPONENT_BIAS)


ALL_VALUES = np.array([decode_code(code) for code in range(256)])
MAGNITUDES = ALL_VALUES[:NAN_CODE]
MIDPOINTS = (MAGNITUDES[:-1] + MAGNITUDES[1:]) / 2


def decode(codes: np.ndarray) -> np.ndarray:
    """uint8 codes → float64 values, same shape."""
    return ALL_VALUES[codes]


def encode(values: np.ndarray) -> np.ndarray:
    """Nearest code, ties to the even code; beyond ±448 saturates; NaN keeps its sign."""
    values = np.asarray(values)
    magnitudes = np.abs(values.astype(np.float64))
    codes = np.searchsorted(MIDPOINTS, magnitudes, side="left")
    tied = magnitudes == MIDPOINTS[np.minimum(codes, len(MIDPOINTS) - 1)]
    codes = np.where(tied & (codes % 2 == 1), codes + 1, codes)
    codes = np.where(np.isnan(magnitudes), NAN_CODE, codes)
    return (codes + np.where(np.signbit(values), SIGN_BIT, 0)).astype(np.uint8)


def token_scales(rows: np.ndarray) -> np.ndarray:
    """float32 [tokens, width] → float32 [tokens, 1]: absmax / 448, and epsilon for a zero row."""
    rows = np.asarray(rows, dtype=np.float32)
    largest = np.max(np.abs(rows), axis=-1, keepdims=True, initial=0.0)
    scales = (largest / np.float32(LARGEST)).astype(np.float32)
    return np.where(scales == 0, ZERO_ROW_SCALE, scales).astype(np.float32)


def quantise_per_token(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 [tokens, width] → (uint8 codes, float32 scales [tokens, 1]).

    The quotient is a float32 division of the value by the scale, clamped to ±448.
    """
    rows = np.asarray(rows, dtype=np.float32)
    scales = token_scales(rows)
    limit = np.float32(LARGEST)
    return encode(np.clip(rows / scales, -limit, limit)), scales


def quantise_weight(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[out, in] → (uint8 codes, float32 scales [out, 1]), one scale per output channel."""
    return quantise_per_token(weight)


def dequantise(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Codes and their scales (broadcast over the last axis) → float64."""
    return decode(codes) * np.asarray(scales, dtype=np.float64)
