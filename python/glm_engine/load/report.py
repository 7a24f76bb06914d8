"""What a load run says: figures of each rate as a dictionary, tables and a file."""

import os
import platform
import sys
from datetime import UTC, datetime
from statistics import fmean

from glm_engine import files
from glm_engine.console import make_table, print_fields, print_table
from glm_engine.version import version

LATENCIES = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2e_ms": "end to end",
    "lateness_ms": "sent late by",
}
GAUGES = {
    "batch_occupancy": ("batch occupancy", "{:.0%}"),
    "kv_utilisation": ("KV utilisation", "{:.0%}"),
    "waiting_requests": ("requests waiting", "{:,.1f}"),
}
SUMMARY = ("mean", "p50", "p90", "p99", "max")


def make_report(target, workload, seed, points, is_interrupted=False):
    return {
        "command": " ".join(["glm", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "target": target,
        "workload": workload,
        "seed": seed,
        "is_interrupted": is_interrupted or any(point["is_interrupted"] for point in points),
        "points": points,
    }


def read_report(path):
    """Read a report of a file; one that cannot be shown whole is refused."""
    return files.read_report(path, "glm load", completed)


def completed(report):
    is_interrupted = any(point["is_interrupted"] for point in report["points"])
    report = {"is_interrupted": is_interrupted, **report}
    shown(report)
    return report


def rate_text(point):
    return "inf" if point["rate"] is None else f"{point['rate']:g}"


def print_report(report):
    fields, tables, complaints = shown(report)
    print_fields(fields)
    for table in tables:
        print()
        print_table(table)
    for line in complaints:
        print(line)


def shown(report):
    """The fields, the tables and the lines below them."""
    points = report["points"]
    tables = [requests_table(points), tokens_table(points), latency_table(points)]
    if watched := [point for point in points if point.get("gauges")]:
        tables.append(gauges_table(watched))
    return fields_of(report), tables, [line for point in points for line in complaints_of(point)]


def fields_of(report):
    workload, target = report["workload"], report["target"]
    return [
        ("target", f"{target['url']}, {target['model']}, {target['endpoint']}"),
        ("prompts", f"{workload['prompts']}, shared prefix {workload['shared_prefix']}"),
        ("outputs", workload["outputs"]),
        ("arrivals", f"burstiness {workload['burstiness']:g}, {limits_text(workload)}"),
        ("seed", str(report["seed"])),
    ]


def limits_text(workload):
    limit = workload["max_concurrency"]
    return "no limit of concurrency" if limit is None else f"at most {limit} at a time"


def requests_table(points):
    columns = (">sent", ">done", ">failed", ">seconds", ">requests/s", ">goodput/s", ">peak")
    table = make_table(">rate/s", *columns, title="requests")
    for point in points:
        good = point["goodput"]
        table.add_row(
            rate_text(point),
            str(point["num_sent"]),
            str(point["num_completed"]),
            str(point["num_sent"] - point["num_completed"]),
            f"{point['duration_s']:.2f}",
            f"{point['requests_per_second']:,.2f}",
            "" if good is None else f"{good['requests_per_second']:,.2f}",
            str(point["peak_concurrency"]),
        )
    return table


def tokens_table(points):
    columns = (">prompt tokens/s", ">output tokens/s", ">client CPU", ">CPU µs/token")
    table = make_table(">rate/s", *columns, ">of it HTTP", title="tokens")
    for point in points:
        server = point["server"] or {}
        costs = (server.get("cpu_us_per_token"), server.get("http_cpu_us_per_token"))
        table.add_row(
            rate_text(point),
            f"{point['prompt_tokens_per_second']:,.1f}",
            f"{point['output_tokens_per_second']:,.1f}",
            f"{point['client_cpu_share']:.0%}",
            *("" if cost is None else f"{cost:,.1f}" for cost in costs),
        )
    return table


def latency_table(points):
    columns = [f">{name}" for name in SUMMARY]
    table = make_table(">rate/s", "milliseconds", *columns, title="latencies of what was done")
    for point in points:
        for name, title in LATENCIES.items():
            if point[name] is not None:
                cells = [f"{point[name][column]:,.2f}" for column in SUMMARY]
                table.add_row(rate_text(point), title, *cells)
    return table


def gauges_table(points):
    columns = (">mean", ">max", ">after seconds")
    table = make_table(">rate/s", "the engine's", *columns, title="the engine meanwhile")
    for point in points:
        for name, (title, text) in GAUGES.items():
            mean = fmean(row[name] for row in point["gauges"])
            peak = max(point["gauges"], key=lambda row: (row[name], -row["seconds"]))
            cells = (text.format(mean), text.format(peak[name]), f"{peak['seconds']:.1f}")
            table.add_row(rate_text(point), title, *cells)
    return table


def complaints_of(point):
    """Lines of what did not go as asked at one rate, with what the server said of it."""
    rate = rate_text(point)
    wrong = [f"{count} of {name}" for name, count in point["outcomes"].items() if name != "200"]
    lines = [f"\nrate {rate}: {', '.join(wrong)}"] if wrong else []
    lines += [f"  {message}" for message in point["messages"]]
    if point["num_shorter"]:
        lines.append(f"\nrate {rate}: {point['num_shorter']} answers are shorter than was asked")
    if point.get("num_without_usage"):
        number = point["num_without_usage"]
        lines.append(f"\nrate {rate}: the server sent no usage with {number} answers")
    return lines
