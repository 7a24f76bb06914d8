"""Report of a load run: the figures of each rate as a dictionary, tables and a file."""

import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from glm_engine.bench.head import report_head
from glm_engine.core import files
from glm_engine.core.acceptance import acceptance_rate
from glm_engine.core.console import coloured, make_table, print_fields, print_table
from glm_engine.load.fields import (
    GaugeName,
    LatencyName,
    Point,
    Report,
    SummaryName,
    TargetFields,
    WorkloadFields,
)
from glm_engine.load.records import COMPLETED, INTERRUPTED

if TYPE_CHECKING:
    from rich.table import Table

LATENCIES: dict[LatencyName, str] = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2e_ms": "E2E latency",
    "lateness_ms": "send delay",
}
GAUGES: dict[GaugeName, tuple[str, str]] = {
    "batch_occupancy": ("batch used", "{:.0%}"),
    "kv_utilisation": ("KV cache used", "{:.0%}"),
    "waiting_requests": ("requests waiting", "{:,.1f}"),
}
ENGINE = "engine"
TOO_LONG_ADVICE = "Lower --prompts and --outputs, or raise the context length (--max-seq)."
SUMMARY: tuple[SummaryName, ...] = ("mean", "p50", "p90", "p99", "max")


def make_report(
    target: TargetFields,
    workload: WorkloadFields,
    seed: int,
    points: list[Point],
    is_interrupted: bool = False,
) -> Report:
    return {
        **report_head(),
        "target": target,
        "workload": workload,
        "seed": seed,
        "is_interrupted": is_interrupted or any(point["is_interrupted"] for point in points),
        "points": points,
    }


def read_report(path: str) -> Report:
    """Read a report from a file; refuse one that cannot be shown as a whole."""
    return files.read_report(path, "glm load", completed)


def completed(report: dict[str, Any]) -> Report:
    is_interrupted = any(point["is_interrupted"] for point in report["points"])
    made = cast(Report, {"is_interrupted": is_interrupted, **report})
    shown(made)
    return made


def rate_text(point: Point) -> str:
    return "inf" if point["rate"] is None else f"{point['rate']:g}"


def print_report(report: Report) -> None:
    fields, tables, complaints = shown(report)
    if line := interruption_of(report):
        print(coloured(line, "warning", sys.stdout))
    if tables:
        print_fields(fields)
    for table in tables:
        print()
        print_table(table)
    for at, lines in enumerate(complaints):
        if tables or at:
            print()
        for line in lines:
            print(coloured(line, "warning", sys.stdout))


def shown(report: Report) -> tuple[list[tuple[str, str]], "list[Table]", list[list[str]]]:
    """Return the fields, the tables of rates at which a request succeeded, and complaints."""
    points = [point for point in report["points"] if point["num_completed"]]
    process = "process" if report["target"]["endpoint"] == ENGINE else "server"
    tables = [requests_table(points), tokens_table(points, process), latency_table(points)]
    if drafted := [point for point in points if known_figures(point).get("mean_acceptance_length")]:
        tables.append(drafts_table(drafted))
    if watched := [point for point in points if point.get("gauges")]:
        tables.append(gauges_table(watched))
    complaints = [lines for point in report["points"] for lines in complaints_of(point)]
    return fields_of(report), tables if points else [], complaints


def num_ended(point: Point) -> int:
    """Return how many requests of a rate ended by themselves, completed or failed."""
    outcomes = point["outcomes"]
    return sum(outcomes.values()) - outcomes.get(INTERRUPTED, 0)


def interruption_of(report: Report) -> str | None:
    """Return the line that says how far an interrupted run came, None for a whole run."""
    if not report["is_interrupted"]:
        return None
    *earlier, last = report["points"]
    sent, asked, rate = last["num_sent"], last["num_asked"], rate_text(last)
    if ended := num_ended(last):
        count = f"{ended:,} of {asked:,} requests finished ({sent:,} sent) at rate {rate}"
    else:
        count = f"{sent:,} of {asked:,} requests sent at rate {rate}, none finished"
    if last["num_completed"]:
        rest = "the figures below cover the finished ones"
    elif any(point["num_completed"] for point in earlier):
        rest = "the figures below cover earlier rates"
    else:
        rest = "there are no figures"
    return f"Interrupted: {count}; {rest}."


def fields_of(report: Report) -> list[tuple[str, str]]:
    workload, target = report["workload"], report["target"]
    most = workload["max_concurrency"] or "unlimited"
    return [
        ("target", f"{target['url']}, {target['model']}, {target['endpoint']}"),
        ("prompts", f"{workload['prompts']}, shared prefix {workload['shared_prefix']}"),
        ("outputs", workload["outputs"]),
        ("arrivals", f"{arrivals_text(workload)}, max concurrency {most}"),
        ("seed", str(report["seed"])),
    ]


def arrivals_text(workload: WorkloadFields) -> str:
    burstiness = workload["burstiness"]
    return f"{'Poisson' if burstiness == 1 else 'gamma'} (burstiness {burstiness:g})"


def requests_table(points: Sequence[Point]) -> "Table":
    return filled_table(
        "Requests",
        {
            ">rate/s": [rate_text(point) for point in points],
            ">sent": [str(point["num_sent"]) for point in points],
            ">done": [str(point["num_completed"]) for point in points],
            ">failed": [str(num_ended(point) - point["num_completed"]) for point in points],
            ">seconds": [f"{point['duration_s']:.2f}" for point in points],
            ">requests/s": [f"{point['requests_per_second']:,.2f}" for point in points],
            ">goodput/s": [goodput_text(point) for point in points],
            ">peak\nconcurrency": [str(point["peak_concurrency"]) for point in points],
        },
    )


def goodput_text(point: Point) -> str:
    good = point["goodput"]
    return "" if good is None else f"{good['requests_per_second']:,.2f}"


def tokens_table(points: Sequence[Point], process: str) -> "Table":
    """Return the table of tokens; `process` is the one that the engine runs in."""
    return filled_table(
        "Tokens",
        {
            ">rate/s": [rate_text(point) for point in points],
            ">input\ntokens/s": [f"{point['prompt_tokens_per_second']:,.1f}" for point in points],
            ">output\ntokens/s": [f"{point['output_tokens_per_second']:,.1f}" for point in points],
            ">load client\nCPU use": [f"{point['client_cpu_share']:.0%}" for point in points],
            f">{process} CPU\nµs/token": [cost_text(point, "cpu") for point in points],
            f">{process} HTTP\nCPU µs/token": [cost_text(point, "http_cpu") for point in points],
        },
    )


def cost_text(point: Point, name: str) -> str:
    cost = known_figures(point).get(f"{name}_us_per_token")
    return "" if cost is None else f"{cost:,.1f}"


def filled_table(title: str, columns: Mapping[str, Sequence[str]]) -> "Table":
    """Return a table of columns by their heading, without those that hold no value."""
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    table = make_table(*filled, title=title)
    for row in zip(*filled.values(), strict=True):
        table.add_row(*row)
    return table


def latency_table(points: Sequence[Point]) -> "Table":
    columns = [f">{name}" for name in SUMMARY]
    table = make_table(">rate/s", "in ms", *columns, title="Latency of completed requests")
    for point in points:
        for name, title in LATENCIES.items():
            if (summary := point[name]) is not None:
                cells = [f"{summary[column]:,.2f}" for column in SUMMARY]
                table.add_row(rate_text(point), title, *cells)
    return table


def known_figures(point: Point) -> dict[str, float]:
    """Return what the server said of itself, without what it did not say."""
    figures = point["server"] or {}
    return {name: value for name, value in figures.items() if value is not None}


def drafts_table(points: Sequence[Point]) -> "Table":
    """Return the table of draft tokens, all requests of a rate together."""
    counts = [known_figures(point) for point in points]
    return filled_table(
        "Speculative decoding",
        {
            ">rate/s": [rate_text(point) for point in points],
            ">drafts": [f"{one['num_drafts']:,.0f}" for one in counts],
            ">draft tokens": [f"{one['num_draft_tokens']:,.0f}" for one in counts],
            ">accepted": [f"{acceptance_rate(one):.1%}" for one in counts],
            ">mean acceptance\nlength": [f"{one['mean_acceptance_length']:.2f}" for one in counts],
        },
    )


def gauges_table(points: Sequence[Point]) -> "Table":
    columns = (">mean", ">max", ">time of max (s)")
    table = make_table(">rate/s", "gauge", *columns, title="Engine")
    for point in points:
        rows = point["gauges"] or []
        for name, (title, text) in GAUGES.items():
            mean = fmean(row[name] for row in rows)
            peak = max(rows, key=lambda row: (row[name], -row["seconds"]))
            cells = (text.format(mean), text.format(peak[name]), f"{peak['seconds']:.1f}")
            table.add_row(rate_text(point), title, *cells)
    return table


def complaints_of(point: Point) -> list[list[str]]:
    """Return groups of lines about requests of one rate that failed or were cut short."""
    rate, groups = rate_text(point), [failures_of(point)]
    if number := point["num_shorter"]:
        groups.append([f"At rate {rate}, answers shorter than requested: {number}"])
    if number := point.get("num_without_usage"):
        groups.append([f"At rate {rate}, answers without usage from the server: {number}"])
    return [lines for lines in groups if lines]


def failures_of(point: Point) -> list[str]:
    """Return the lines about the failed requests of one rate."""
    rate, messages = rate_text(point), [f"  {message}" for message in point["messages"]]
    if context := point.get("exceeded_context"):
        ended, failed = num_ended(point), num_ended(point) - point["num_completed"]
        reason = f"refused because the context length is {context:,} tokens"
        count = f"At rate {rate}, requests {reason}: {failed:,} of {ended:,}"
        return [count, TOO_LONG_ADVICE, *messages]
    fine = (COMPLETED, INTERRUPTED)
    wrong = [
        f"{count} with {name}" for name, count in point["outcomes"].items() if name not in fine
    ]
    return [f"At rate {rate}, requests failed: {', '.join(wrong)}", *messages] if wrong else []
