"""FP8 E4M3 and BF16 codes in numpy: rounding to nearest even, without PyTorch."""

import numpy as np

E4M3_LARGEST = 448.0
E4M3_NAN = 0x7F
E4M3_SIGN = 0x80


def _positive_values() -> np.ndarray:
    codes = np.arange(0x7F)
    exponents, mantissas = codes >> 3, codes & 7
    denormals = mantissas * 2.0**-9
    normals = (8 + mantissas) * 2.0 ** (exponents - 10.0)
    return np.where(exponents == 0, denormals, normals)


E4M3_POSITIVE = _positive_values()
E4M3_MIDPOINTS = (E4M3_POSITIVE[:-1] + E4M3_POSITIVE[1:]) / 2


def encode_e4m3(values: np.ndarray) -> np.ndarray:
    """Codes [same shape] uint8 of float values; above 448 saturates, NaN becomes 0x7F."""
    wide = np.asarray(values, dtype=np.float64)
    magnitudes = np.abs(wide)
    below = np.searchsorted(E4M3_MIDPOINTS, magnitudes, side="left")
    above = np.searchsorted(E4M3_MIDPOINTS, magnitudes, side="right")
    codes = np.where(below % 2 == 0, below, above).astype(np.uint8)
    codes = np.where(np.isnan(wide), np.uint8(E4M3_NAN), codes)
    signs = np.where(np.signbit(wide), np.uint8(E4M3_SIGN), np.uint8(0))
    signed: np.ndarray = codes | signs
    return signed


def decode_e4m3(codes: np.ndarray) -> np.ndarray:
    """Float32 values [same shape] of codes; 0x7F and 0xFF are NaN."""
    table = np.append(E4M3_POSITIVE, np.nan).astype(np.float32)
    magnitudes: np.ndarray = table[codes & 0x7F]
    values: np.ndarray = np.where(codes & E4M3_SIGN, -magnitudes, magnitudes)
    return values


def encode_bf16(values: np.ndarray) -> np.ndarray:
    """Codes [same shape] uint16, the upper halves of float32, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    quiet = (bits >> 16) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def decode_bf16(codes: np.ndarray) -> np.ndarray:
    """Float32 values [same shape] of BF16 codes."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """The nearest BF16 values, as float32."""
    return decode_bf16(encode_bf16(values))
