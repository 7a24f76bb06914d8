"""Report of a benchmark: speeds beside the roofline of memory, as a dictionary and as tables."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from glm_engine.bench.costs import Costs
from glm_engine.bench.head import report_head
from glm_engine.bench.steps import Figures
from glm_engine.core import files
from glm_engine.core.acceptance import speculation_of
from glm_engine.core.console import human_bytes, make_table, print_table
from glm_engine.core.reports import EngineInfo

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_OPERATIONS = 12
LENGTH = "mean_acceptance_length"
Report = dict[str, Any]
Row = Mapping[str, Any]
INFO_NAMES = (
    "device",
    "world_size",
    "num_layers",
    "num_parameters",
    "weight_bytes",
    "kv_bytes",
    "workspace_bytes",
    "kv_bytes_per_token",
    "page_size",
    "total_pages",
    "max_batch",
    "max_seq",
    "max_step_tokens",
    "num_graphs",
    "graph_bytes",
    "plans_ahead",
    "speculate",
    "max_draft_tokens",
    "num_prediction_layers",
)


def with_floor(
    figures: Figures, costs: Costs, read_rate: float, always_predicts: bool = False
) -> Figures:
    """Add the bytes read, the time that reading them takes, and its share.

    always_predicts: each step drafts a token of each request with the prediction layer.
    """
    rows = figures["rows_per_step"]
    weights = costs.weight_bytes(rows)
    if always_predicts:
        weights += costs.prediction_bytes(figures["batch"])
    total = weights + costs.kv_bytes(figures["batch"], figures["mean_context"])
    floor_ms = total / read_rate * 1e3
    return {
        **figures,
        "weight_bytes": weights,
        "kv_bytes": total - weights,
        "bytes": total,
        "expected_experts_per_layer": costs.experts_hit(rows) if costs.num_moe_layers else 0,
        "floor_ms": floor_ms,
        "share_of_floor": floor_ms / figures["step_ms"],
        "host_ms_not_hidden": figures["step_ms"] - figures["device_ms"],
    }


def with_flops(figures: Figures, costs: Costs) -> Figures:
    flops = costs.prefill_flops(figures["tokens"])
    return {**figures, "flops": flops, "teraflops_per_second": flops / figures["seconds"] / 1e12}


def make_report(
    source: str,
    info: EngineInfo,
    seconds: float,
    read_rate: float,
    decode: Sequence[Row],
    prefill: Sequence[Row],
) -> Report:
    facts: Mapping[str, object] = dict(info)
    return {
        **report_head(),
        "model": source,
        "engine": {name: facts[name] for name in INFO_NAMES} | {"speculate": speculation_of(info)},
        "load_seconds": seconds,
        "capture_seconds": info["capture_ns"] / 1e9,
        "read_bytes_per_second": read_rate,
        "decode": decode,
        "prefill": prefill,
    }


def read_report(path: str | PathLike[str]) -> Report:
    """Read a report from a file; refuse one that cannot be shown as a whole."""
    return files.read_report(path, "glm bench", completed)


def completed(report: Report) -> Report:
    shown(report, with_operations=True)
    return report


def print_report(report: Report, with_operations: bool = False) -> None:
    line, tables = shown(report, with_operations)
    print(line)
    for table in tables:
        print()
        print_table(table)


def shown(report: Report, with_operations: bool) -> tuple[str, list["Table"]]:
    """Return the line about model and machine, and the tables; prefill and decode come last."""
    tables = operations_tables(report) if with_operations else []
    if report["prefill"]:
        tables.append(prefill_table(report["prefill"]))
    if report["decode"]:
        tables.append(decode_table(report["decode"]))
    return line_of(report), tables


def line_of(report: Report) -> str:
    """Return model, device, weights, load time and memory bandwidth in one line."""
    engine = report["engine"]
    ranks = f" x {engine['world_size']}" if engine["world_size"] > 1 else ""
    return (
        f"{report['model']}, {engine['num_layers']} layers, on {engine['device']}{ranks}: "
        f"{human_bytes(engine['weight_bytes'])} of weights loaded in "
        f"{report['load_seconds']:.1f} s, memory reads at "
        f"{human_bytes(report['read_bytes_per_second'])}/s"
    )


def operations_tables(report: Report) -> list["Table"]:
    places = [(f"prefill of {row['tokens']:,} tokens", row) for row in report["prefill"]]
    places += [
        (f"decode step, batch {row['batch']}, context {row['context']:,}", row)
        for row in report["decode"]
    ]
    return [
        operations_table(place, row["operations"]) for place, row in places if row.get("operations")
    ]


def decode_table(rows: Sequence[Row]) -> "Table":
    has_drafts = any(LENGTH in row for row in rows)
    table = make_table(
        ">batch",
        ">context",
        ">tokens/s",
        *([">tokens/pass"] if has_drafts else []),
        ">ms/step",
        ">device ms",
        ">host ms",
        ">read/step",
        ">roofline ms",
        ">of roofline",
        ">KV used",
        ">batch used",
        title="Decode",
    )
    for row in rows:
        table.add_row(*decode_cells(row, has_drafts))
    return table


def decode_cells(row: Row, has_drafts: bool) -> list[str]:
    head = [str(row["batch"]), f"{row['context']:,}"]
    if "skipped" in row:
        return [*head, row["skipped"]]
    return [
        *head,
        f"{row['tokens_per_second']:,.1f}",
        *([length_text(row)] if has_drafts else []),
        f"{row['step_ms']:.3f}",
        f"{row['device_ms']:.3f}",
        f"{row['plan_ms'] + row['launch_ms']:.3f}",
        human_bytes(round(row["bytes"])),
        f"{row['floor_ms']:.3f}",
        f"{row['share_of_floor']:.1%}",
        f"{row['kv_utilisation']:.0%}",
        f"{row['occupancy']:.0%}",
    ]


def length_text(row: Row) -> str:
    length = row.get(LENGTH)
    return "" if length is None else f"{length:.2f}"


def prefill_table(rows: Iterable[Row]) -> "Table":
    table = make_table(
        ">tokens", ">tokens/s", ">seconds", ">device seconds", ">steps", ">TFLOP/s", title="Prefill"
    )
    for row in rows:
        if "skipped" in row:
            table.add_row(f"{row['tokens']:,}", row["skipped"])
            continue
        table.add_row(
            f"{row['tokens']:,}",
            f"{row['tokens_per_second']:,.1f}",
            f"{row['seconds']:.4f}",
            f"{row['device_seconds']:.4f}",
            str(row["steps"]),
            f"{row['teraflops_per_second']:.2f}",
        )
    return table


def operations_table(place: str, operations: Sequence[Row]) -> "Table":
    table = make_table(f"Operations of a {place}", ">calls", ">ms", ">of all")
    total = sum(one["ms"] for one in operations) or 1.0
    for one in operations[:SHOWN_OPERATIONS]:
        share = one["ms"] / total
        table.add_row(one["name"], f"{one['calls']:.0f}", f"{one['ms']:.3f}", f"{share:.1%}")
    return table
