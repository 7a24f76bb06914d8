"""Lines of the table, and the same as JSON and Markdown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tools.bench.kernels.case import PRODUCT, Case
from tools.bench.kernels.ceilings import NAMES

TITLES = (
    "model",
    "operation",
    "shape",
    "tokens",
    "µs",
    "TB/s",
    "TFLOP/s",
    "ceiling",
    "share",
    "library µs",
    "library",
)


@dataclass(frozen=True)
class Line:
    """A measured case; `share` is of the ceiling named `bound`, library_us of `library`."""

    model: str
    operation: str
    shape: str
    num_tokens: int
    microseconds: float
    bytes_per_second: float
    flops_per_second: float
    bound: str
    share: float
    library: str
    library_us: float | None

    def cells(self) -> list[str]:
        beside = "" if self.library_us is None else f"{self.library_us:.2f}"
        flops = f"{self.flops_per_second / 1e12:.0f}" if self.flops_per_second else ""
        head = (self.model, self.operation, self.shape, str(self.num_tokens))
        rates = (f"{self.microseconds:.2f}", f"{self.bytes_per_second / 1e12:.2f}", flops)
        return (*head, *rates, self.bound, f"{100 * self.share:.0f} %", beside, self.library)


def line_of(model: str, case: Case, spent: float, beside: float | None, name: str, rates) -> Line:
    """One line from microseconds a call and the ceilings."""
    bytes_rate, flops_rate = case.num_bytes / spent * 1e6, case.num_flops / spent * 1e6
    achieved = flops_rate if case.bound == PRODUCT else bytes_rate
    share = achieved / rates[case.bound]
    head = (model, case.operation, case.shape, case.num_tokens)
    return Line(*head, spent, bytes_rate, flops_rate, case.bound, share, name, beside)


def ceiling_lines(rates: dict[str, float]) -> list[str]:
    return [f"{NAMES[name]}: {rate / 1e12:.2f} T/s" for name, rate in rates.items()]


def markdown(command: str, machine: dict, rates: dict[str, float], lines: Sequence[Line]) -> str:
    table = [TITLES, ["---"] * len(TITLES), *(line.cells() for line in lines)]
    described = [f"- {key}: {value}" for key, value in machine.items()]
    ceilings = [f"- {text}" for text in ceiling_lines(rates)]
    rows = ["| " + " | ".join(cells) + " |" for cells in table]
    head = ["# Kernels", "", f"`{command}`", "", *described, "", "Ceilings:", ""]
    return "\n".join([*head, *ceilings, "", *rows, ""])


def as_dict(command: str, machine: dict, rates: dict[str, float], lines: Sequence[Line]) -> dict:
    measured = [asdict(line) for line in lines]
    return {"command": command, "machine": machine, "ceilings": rates, "lines": measured}


def text_table(lines: Sequence[Line]) -> str:
    """The cells of every line in columns of equal width."""
    table = [TITLES, *(line.cells() for line in lines)]
    widths = [max(len(row[i]) for row in table) for i in range(len(TITLES))]
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "\n".join(padded)
