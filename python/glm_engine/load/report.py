"""What a load run says: figures of each rate as a dictionary, tables and a file."""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from glm_engine.console import make_table, print_fields, print_table
from glm_engine.errors import BadInputError
from glm_engine.version import version

LATENCIES = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2e_ms": "end to end",
    "lateness_ms": "sent late by",
}
SUMMARY = ("mean", "p50", "p90", "p99", "max")


def make_report(target, workload, seed, points):
    return {
        "command": " ".join(["glm", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "target": target,
        "workload": workload,
        "seed": seed,
        "points": points,
    }


def read_report(path):
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
        needed = {"target", "workload", "seed", "points"}
        return {**report, **{name: report[name] for name in needed}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{path}: not a report of glm load: {error!r}") from error


def rate_text(point):
    return "inf" if point["rate"] is None else f"{point['rate']:g}"


def print_report(report):
    workload, target = report["workload"], report["target"]
    print_fields(
        [
            ("target", f"{target['url']}, {target['model']}, {target['endpoint']}"),
            ("prompts", f"{workload['prompts']}, shared prefix {workload['shared_prefix']}"),
            ("outputs", workload["outputs"]),
            ("arrivals", f"burstiness {workload['burstiness']:g}, {limits_text(workload)}"),
            ("seed", str(report["seed"])),
        ]
    )
    print()
    print_table(throughput_table(report["points"]))
    print()
    print_table(latency_table(report["points"]))
    for point in report["points"]:
        print_failures(point)


def limits_text(workload):
    limit = workload["max_concurrency"]
    return "no limit of concurrency" if limit is None else f"at most {limit} at a time"


def throughput_table(points):
    table = make_table(
        ">rate/s",
        ">sent",
        ">done",
        ">failed",
        ">seconds",
        ">requests/s",
        ">prompt tokens/s",
        ">output tokens/s",
        ">goodput/s",
        ">peak",
        ">client CPU",
        ">CPU µs/token",
        ">of it HTTP",
        title="throughput",
    )
    for point in points:
        table.add_row(*throughput_cells(point))
    return table


def throughput_cells(point):
    good, server = point["goodput"], point["server"] or {}
    costs = (server.get("cpu_us_per_token"), server.get("http_cpu_us_per_token"))
    return [
        rate_text(point),
        str(point["num_sent"]),
        str(point["num_completed"]),
        str(point["num_sent"] - point["num_completed"]),
        f"{point['duration_s']:.2f}",
        f"{point['requests_per_second']:,.2f}",
        f"{point['prompt_tokens_per_second']:,.1f}",
        f"{point['output_tokens_per_second']:,.1f}",
        "" if good is None else f"{good['requests_per_second']:,.2f}",
        str(point["peak_concurrency"]),
        f"{point['client_cpu_share']:.0%}",
        *("" if cost is None else f"{cost:,.1f}" for cost in costs),
    ]


def latency_table(points):
    columns = [f">{name}" for name in SUMMARY]
    table = make_table(">rate/s", "milliseconds", *columns, title="latencies of what was done")
    for point in points:
        for name, title in LATENCIES.items():
            if point[name] is not None:
                cells = [f"{point[name][column]:,.2f}" for column in SUMMARY]
                table.add_row(rate_text(point), title, *cells)
    return table


def print_failures(point):
    """What did not go as asked at one rate, with what the server said of it."""
    rate = rate_text(point)
    wrong = {name: count for name, count in point["outcomes"].items() if name != "200"}
    if wrong:
        print(f"\nrate {rate}: " + ", ".join(f"{count} of {name}" for name, count in wrong.items()))
        for message in point["messages"]:
            print(f"  {message}")
    if point["num_shorter"]:
        print(f"\nrate {rate}: {point['num_shorter']} answers are shorter than was asked")
