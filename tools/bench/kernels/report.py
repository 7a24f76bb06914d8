"""Lines of the table, and the same as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.bench.kernels.case import CEILINGS, PRODUCTS, Case, Rates

TITLES = (
    "model",
    "operation",
    "shape",
    ">tokens",
    ">µs",
    ">TB/s",
    ">TFLOP/s",
    "ceiling",
    ">share",
    ">read µs",
    ">library µs",
    ">ratio",
    ">exact µs",
    ">exact ratio",
    "library",
)


@dataclass(frozen=True)
class Described:
    """What all lines have in common: command, machine, ceilings."""

    command: str
    machine: Mapping[str, object]
    rates: Rates


@dataclass(frozen=True)
class Line:
    """A measured case; `share` is of the ceiling named `bound`, library_us of `library`, exact_us
    of the same with exact accumulation, read_us of a plain read of the weights in a chain of
    launches."""

    model: str
    operation: str
    shape: str
    num_tokens: int
    microseconds: float
    bytes_per_second: float
    flops_per_second: float
    bound: str
    share: float | None
    library: str
    library_us: float | None
    read_us: float | None = None
    exact_us: float | None = None

    @property
    def library_ratio(self) -> float | None:
        """Above 1 the library is slower."""
        return self.over_ours(self.library_us)

    @property
    def exact_ratio(self) -> float | None:
        return self.over_ours(self.exact_us)

    def over_ours(self, spent: float | None) -> float | None:
        return None if spent is None else spent / self.microseconds

    def cells(self) -> list[str]:
        beside = (self.library_us, self.library_ratio, self.exact_us, self.exact_ratio)
        times = [number(value) for value in (self.read_us, *beside)]
        flops = f"{self.flops_per_second / 1e12:.0f}" if self.flops_per_second else ""
        head = (self.model, self.operation, self.shape, str(self.num_tokens))
        rates = (f"{self.microseconds:.2f}", f"{self.bytes_per_second / 1e12:.2f}", flops)
        share = "" if self.share is None else f"{100 * self.share:.0f} %"
        return [*head, *rates, self.bound, share, *times, self.library]


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


@dataclass(frozen=True)
class Spent:
    """Microseconds of a call, of the library's, of the plain read, and of the library's with exact
    accumulation."""

    ours: float
    library: float | None = None
    read: float | None = None
    exact: float | None = None


def line_of(model: str, case: Case, times: Spent, name: str, rates: Rates) -> Line:
    """One line from microseconds a call and the ceilings."""
    bytes_rate, flops_rate = (1e6 * n / times.ours for n in (case.num_bytes, case.num_flops))
    achieved = flops_rate if case.bound in PRODUCTS else bytes_rate
    ceiling = rates[case.bound]
    return Line(
        model,
        case.operation,
        case.shape,
        case.num_tokens,
        times.ours,
        bytes_rate,
        flops_rate,
        case.bound,
        achieved / ceiling if ceiling else None,
        name,
        times.library,
        times.read,
        times.exact,
    )


def ceiling_lines(rates: Rates) -> list[str]:
    """In units of 10¹² bytes or operations a second."""
    return [
        f"{CEILINGS.get(name, name)}: " + ("failed" if rate is None else f"{rate / 1e12:.3f} T/s")
        for name, rate in rates.items()
    ]


def as_dict(described: Described, lines: Sequence[Line]) -> dict[str, Any]:
    named = {"command": described.command, "machine": described.machine}
    return {**named, "ceilings": described.rates, "lines": [asdict(line) for line in lines]}
