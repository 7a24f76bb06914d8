"""One line of the table: an operation at a shape, and what does the same in the library."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

READ, COPY, HOST_COPY = "read", "copy", "host copy"
FP8_PRODUCT, BF16_PRODUCT = "fp8 product", "bf16 product"
FAST = f"{FP8_PRODUCT}, fast accumulation"
SUSTAINED = f"{FP8_PRODUCT}, sustained"
SIDE = 8192
CEILINGS = {
    READ: "a plain read of 3 GB",
    COPY: "a scaled copy of 1 GiB, bytes read and written",
    HOST_COPY: "a copy of 64 MiB to pinned memory of the host",
    FP8_PRODUCT: f"_scaled_mm {SIDE}³, row scales, exact accumulation",
    FAST: f"_scaled_mm {SIDE}³, row scales, fast accumulation",
    BF16_PRODUCT: f"a BF16 product {SIDE}³",
    SUSTAINED: f"_scaled_mm {SIDE}³ as the first, after a second of nothing else",
}
PRODUCTS = (FP8_PRODUCT, BF16_PRODUCT)
DEVICE, LIBRARY, HOST = "events of the device", "events of PyTorch", "clock of the host"
ROTATED_BYTES = 600_000_000
MAX_SETS = 80
Call = Callable[[], object]
Rates = Mapping[str, float | None]
"""Bytes or floating-point operations a second of each ceiling, None where it failed."""


@dataclass
class Library:
    """A function of the library and the calls that rotate over its operands; `exact` are the same
    calls with exact accumulation where `calls` have the fast one."""

    name: str
    calls: Sequence[Call]
    exact: Sequence[Call] = ()


@dataclass
class Case:
    """`calls` rotate over operands; `num_bytes` and `num_flops` are those of one call; `reads`
    only read the weights of a call each."""

    operation: str
    shape: str
    num_tokens: int
    num_bytes: float
    calls: Sequence[Call]
    num_flops: float = 0.0
    bound: str = READ
    library: Library | None = None
    keep: object = None
    clock: str = DEVICE
    reads: Sequence[Call] = ()


def num_sets(bytes_of_a_set: float, most: int = MAX_SETS) -> int:
    """How many sets of operands are more than the cache holds, within reason."""
    return int(min(most, max(1, -(-ROTATED_BYTES // max(1, int(bytes_of_a_set))))))
