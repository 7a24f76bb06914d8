"""The tables of the page."""

from collections.abc import Sequence

from tools.bench import report
from tools.bench.cuda import peer
from tools.bench.cuda.asked import SHARES, asked_share, loading_rate
from tools.bench.cuda.results import Results
from tools.bench.figures import Figure
from tools.bench.kernels.case import CEILINGS
from tools.bench.kernels.report import Line, number

DECODE_TITLES = (
    "context",
    "batch",
    "tokens/s",
    "ms a step",
    "device ms",
    "GB a step",
    "floor ms",
    "floor over step",
    "asked",
    "aim",
    f"vLLM {peer.VERSION}, ms a step",
)
DECODE_CONTEXT = 128


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def peer_cell(row: dict) -> str:
    milliseconds = peer.STEP_MS.get(row["batch"]) if row["context"] == DECODE_CONTEXT else None
    return "" if milliseconds is None else f"{milliseconds:.2f}"


def decode_cells(row: dict) -> list[str]:
    share = SHARES.get(row["batch"]) if row["context"] == DECODE_CONTEXT else None
    numbers = (row["step_ms"], row["device_ms"], row["bytes"] / 1e9, row["floor_ms"])
    return [
        f"{row['context']:,}",
        str(row["batch"]),
        f"{row['tokens_per_second']:,.0f}",
        *(f"{number:.2f}" for number in numbers),
        f"**{100 * row['share_of_floor']:.1f} %**",
        percent(asked_share(row)),
        percent(share and share.aim),
        peer_cell(row),
    ]


def decode(results: Results) -> list[str]:
    return report.markdown_table(DECODE_TITLES, [decode_cells(row) for row in results.decode])


def prefill(results: Results) -> list[str]:
    titles = ("tokens", "tokens/s", "seconds", "device seconds", "TFLOP/s")
    rows = [
        (
            f"{row['tokens']:,}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['seconds']:.4f}",
            f"{row['device_seconds']:.4f}",
            f"{row['teraflops_per_second']:.0f}",
        )
        for row in results.prefill
    ]
    return report.markdown_table(titles, rows)


def operation_names(rows: Sequence[dict]) -> list[str]:
    """Operations by the most milliseconds that they take in any row."""
    most: dict[str, float] = {}
    for row in rows:
        for one in row["operations"]:
            most[one["name"]] = max(most.get(one["name"], 0.0), one["ms"])
    return sorted(most, key=lambda name: -most[name])


def profiled(results: Results) -> list[dict]:
    return [row for row in results.decode if row.get("operations")]


def operations(results: Results) -> list[str]:
    """Milliseconds of an eager step: a row an operation, a column a batch size."""
    rows = profiled(results)
    times = [{one["name"]: one["ms"] for one in row["operations"]} for row in rows]
    titles = ("ms of a step, eager", *(f"batch {row['batch']}" for row in rows))
    lines = [
        (name, *(f"{time.get(name, 0.0):.3f}" for time in times)) for name in operation_names(rows)
    ]
    return report.markdown_table(titles, lines)


def loading(results: Results) -> list[str]:
    titles = ("file", "GB", "seconds", "GB/s")
    rows = [
        (
            name,
            f"{one['engine']['weight_bytes'] / 1e9:.1f}",
            f"{one['load_seconds']:.2f}",
            f"{loading_rate(one):.1f}",
        )
        for name, one in results.loadings.items()
    ]
    return report.markdown_table(titles, rows)


def ceilings(results: Results) -> list[str]:
    rates = results.kernels.ceilings
    rows = [
        (text, "failed" if rates.get(name) is None else f"{rates[name] / 1e12:,.3f}")
        for name, text in CEILINGS.items()
    ]
    return report.markdown_table(("ceiling", "10¹² bytes or operations a second"), rows)


def behind(lines: Sequence[Line]) -> list[str]:
    titles = ("model", "operation", "shape", "rows", "µs", "library µs", "ratio", "library")
    rows = [
        (
            line.model,
            line.operation,
            line.shape,
            str(line.num_tokens),
            number(line.microseconds),
            number(line.library_us),
            number(line.library_ratio),
            line.library,
        )
        for line in lines
    ]
    return report.markdown_table(titles, rows)


def asked(figures: Sequence[Figure]) -> list[str]:
    rows = [report.row(figure) for figure in figures]
    return report.markdown_table(("asked", "measured", "limit", "", "note"), rows)
