"""One line of the table: an operation at a shape, and what does the same in the library."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

READ, COPY, PRODUCT = "read", "copy", "fp8 product"
ROTATED_BYTES = 600_000_000
MAX_SETS = 48


@dataclass
class Library:
    """A function of the library and the calls that rotate over its operands."""

    name: str
    calls: Sequence[Callable[[], object]]


@dataclass
class Case:
    """`calls` rotate over operands; `num_bytes` and `num_flops` are those of one call."""

    operation: str
    shape: str
    num_tokens: int
    num_bytes: float
    calls: Sequence[Callable[[], None]]
    num_flops: float = 0.0
    bound: str = READ
    library: Library | None = None
    keep: list = field(default_factory=list)


def num_sets(bytes_of_a_set: float) -> int:
    """How many sets of operands are more than the cache holds, within reason."""
    return int(min(MAX_SETS, max(1, -(-ROTATED_BYTES // max(1, int(bytes_of_a_set))))))
