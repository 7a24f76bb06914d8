"""Inputs that every device reads alike: values that BF16 or E4M3 represents, drawn by a key."""

import numpy as np

from glm_engine.core.float8 import decode_e4m3, encode_bf16, round_to_bf16
from glm_engine.verify.device import BF16, FP8, GATE_UP, LINEAR, Device, Matrix
from glm_engine.verify.operations import ExpertStack, PlacedExperts, empty_experts, linear

SEED = 20470
CODE_BITS, LEAST_CODE = 0x8F, 0x30
CODE_DEVIATION = 1.1587810
BF16_BITS, LEAST_BF16 = 0x81FF, 0x3C00
ROUTER_BITS, LEAST_ROUTER = 0x80FF, 0x3C00
DIGITS = 3
LINE = 64
BASE = 256
Stored = tuple[np.ndarray, np.ndarray | None]
"""Rows of weights as a checkpoint holds them, and their scales."""


def generator(*key: int | str) -> np.random.Generator:
    """A generator of its own for each key, the same for every device."""
    words = [SEED]
    for part in key:
        words.extend(part.encode() if isinstance(part, str) else [part])
    return np.random.Generator(np.random.SFC64(words))


def bits(rng: np.random.Generator, shape: tuple[int, int], kind: type[np.generic]) -> np.ndarray:
    """Random bits as unsigned integers of a kind."""
    rows, columns = shape
    num_bytes = rows * columns * np.dtype(kind).itemsize
    words = rng.integers(0, 2**64, -(-num_bytes // 8), dtype=np.uint64)
    return words.view(np.uint8)[:num_bytes].view(kind).reshape(shape)


def codes(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """E4M3 codes of magnitudes from 0.5 to 2."""
    return (bits(rng, shape, np.uint8) & np.uint8(CODE_BITS)) | np.uint8(LEAST_CODE)


def activations(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """float32 of normal values that BF16 represents."""
    return round_to_bf16(rng.standard_normal((rows, width), dtype=np.float32))


def exact_codes(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """float32 values that E4M3 represents, of magnitudes from 0.5 to 2."""
    return decode_e4m3(codes(rng, (rows, width)))


def sixteenths(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """float32 values between -4 and 4, of which BF16 represents the sum of two, too."""
    return rng.integers(-64, 64, (rows, width)).astype(np.float32) / 16


def stored(rng: np.random.Generator, dtype: int, rows: int, columns: int) -> Stored:
    """Random weights; products with normal values are near 1 for FP8, a few for BF16."""
    if dtype == FP8:
        scale = rng.uniform(0.75, 1.25, rows) / (CODE_DEVIATION * np.sqrt(columns))
        return codes(rng, (rows, columns)), scale.astype(np.float32)
    mask, least = (BF16_BITS, LEAST_BF16) if dtype == BF16 else (ROUTER_BITS, LEAST_ROUTER)
    words = (bits(rng, (rows, columns), np.uint16) & np.uint16(mask)) | np.uint16(least)
    if dtype == BF16:
        return words, None
    return (words.astype(np.uint32) << 16).view(np.float32), None


def matrix(
    device: Device,
    rng: np.random.Generator,
    dtype: int,
    rows: int,
    columns: int,
    role: int = LINEAR,
    has_bias: bool = False,
) -> Matrix:
    weight, scale = stored(rng, dtype, rows, columns)
    bias = round_to_bf16(rng.standard_normal(rows, dtype=np.float32)) if has_bias else None
    return Matrix(device, weight, dtype, role, scale, bias)


def place_experts(
    device: Device, key: str, dtype: int, role: int, shape: tuple[int, int, int]
) -> PlacedExperts:
    """Random experts of [experts, rows, columns], one drawn and placed after the other."""
    num_experts, rows, columns = shape
    placed = empty_experts(device, num_experts, (dtype, role, rows, columns), dtype == FP8)
    for number in range(num_experts):
        weight, scale = stored(generator(key, number), dtype, rows, columns)
        Matrix.fill(device, placed.of(number), weight, scale, None)
    return placed


def experts(
    device: Device, key: str, dtype: int, num_experts: int, hidden_size: int, width: int
) -> ExpertStack:
    """Random experts of a width."""
    gate_up = (num_experts, 2 * width, hidden_size)
    down = (num_experts, hidden_size, width)
    return ExpertStack(
        place_experts(device, f"{key} gate_up", dtype, GATE_UP, gate_up),
        place_experts(device, f"{key} down", dtype, LINEAR, down),
        num_experts,
    )


def gate_up_order(device: Device, rows: int) -> np.ndarray:
    """The row of a GATE_UP matrix that each column of `linear`'s output comes from.

    The weights are the digits of each row's number, and each token picks one digit.
    """
    number = np.arange(rows)[:, None] // BASE ** np.arange(DIGITS) % BASE
    weight = np.zeros((rows, LINE), np.float32)
    weight[:, :DIGITS] = number
    tokens = np.eye(DIGITS, LINE, dtype=np.float32)
    placed = Matrix(device, encode_bf16(weight), BF16, GATE_UP)
    digits = np.nan_to_num(linear(device, placed, tokens)).astype(np.int64)
    order: np.ndarray = BASE ** np.arange(DIGITS) @ digits
    is_whole = np.array_equal(np.sort(order), np.arange(rows))
    return order if is_whole else np.arange(rows)
