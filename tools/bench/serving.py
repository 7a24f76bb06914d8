"""`python -m tools.bench.serving`: the acceptance figures of a server, beside their limits.

The same requests go to a server of their own and into an engine without a server, by turns.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from glm_engine.core.files import prepare_target
from tools.bench import command, processes, report
from tools.bench.processes import GLM, CommandError
from tools.bench.report import Bound, Figure, Section

READY = re.compile(r"serving \S+ on (http://[^\s\"]+)")
FIRST_REQUEST = ("--requests", "1", "--rate", "inf", "--prompts", "fixed:8", "--outputs", "fixed:2")
LEAST_SHARE, MOST_MICROSECONDS = 0.95, 120.0
METHOD = (
    "The same requests, streamed, through `glm serve` and in an engine without a server (`glm load "
    "--engine`). Throughput: output tokens over the time from the first request to the last end. "
    "CPU: what the server's own counters of CPU seconds grew by over generated tokens, of the "
    "thread that speaks HTTP and of all threads."
)


Point = Mapping[str, Any]
"""The figures of the one rate of a `glm load`."""


@dataclass(frozen=True)
class Cores:
    """Which cores the engine's threads may use, and which the HTTP thread and the client."""

    engine: frozenset[int]
    http: frozenset[int]


@contextmanager
def running_server(engine_options: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`glm serve` on a free port: its process and URL."""
    words = [*GLM, "serve", "--port", "0", "--log-level", "warning", *engine_options]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"

        def find_url() -> str | None:
            found = READY.search(log.read_text(encoding="utf-8"))
            return found and found[1]

        with processes.running_server(words, log, find_url) as server:
            yield server


def load(arguments: Sequence[str], cores: frozenset[int] | None = None) -> Point:
    point: Point
    [point] = json.loads(processes.run_glm("load", *arguments, "--json", cores=cores))["points"]
    if point["num_completed"] != point["num_asked"] or point["num_shorter"]:
        raise CommandError(f"some requests were not answered in full: {point['outcomes']}")
    return point


def at_server(requests: Sequence[str], engine_options: Sequence[str], cores: Cores | None) -> Point:
    """Figures of the requests at a server, with what its own counters grew by.

    The engine starts its threads with its first request: only then they can be pinned.
    """
    with running_server(engine_options) as (process, url):
        if cores:
            load([url, *FIRST_REQUEST])
            pin(process.pid, cores.http, cores.engine)
        return load([url, *requests, "--warm-up", "8"], cores.http if cores else None)


def in_engine(requests: Sequence[str], engine_options: Sequence[str], cores: Cores | None) -> Point:
    """Figures of the same requests in an engine that no server stands before."""
    allowed = cores.engine | cores.http if cores else None
    return load(["--engine", *engine_options, *requests, "--warm-up", "8"], allowed)


def thread_ids(process_id: int) -> list[int]:
    return sorted(int(path.name) for path in Path(f"/proc/{process_id}/task").iterdir())


def pin(process_id: int, http_cores: frozenset[int], engine_cores: frozenset[int]) -> None:
    """Let the main thread, which speaks HTTP, run on some cores and all others on others."""
    for thread_id in thread_ids(process_id):
        os.sched_setaffinity(thread_id, http_cores if thread_id == process_id else engine_cores)


def middle(rounds: Sequence[Point], name: str) -> float:
    values: list[float] = [point[name] for point in rounds]
    return median(values)


def figures_of(servers: Sequence[Point], engines: Sequence[Point]) -> Sequence[Figure]:
    """Throughput of both sides, their ratio, and what a token costs."""
    mine = middle(servers, "output_tokens_per_second")
    own = middle(engines, "output_tokens_per_second")
    costs = [point["server"] for point in servers]
    http, process = (middle(costs, f"{name}_us_per_token") for name in ("http_cpu", "cpu"))
    client = max(point["client_cpu_share"] for point in servers)
    ttft = median(point["ttft_ms"]["p50"] for point in servers)
    return (
        Figure("through the server", mine, "tokens/s", note=f"TTFT {ttft:,.0f} ms (p50)"),
        Figure("the engine's own", own, "tokens/s"),
        Figure("server over engine", mine / own, "", Bound.AT_LEAST, LEAST_SHARE),
        Figure("CPU of the HTTP thread", http, "µs a token", Bound.AT_MOST, MOST_MICROSECONDS),
        Figure("CPU of the process", process, "µs a token"),
        Figure("CPU of the client", 100 * client, "%", note="of one core, the greatest"),
    )


def parse_cores(text: str | None) -> Cores | None:
    """Cores of `0/1`: the engine's before the slash, HTTP's and the client's after it."""
    if text is None:
        return None
    try:
        parts = [frozenset(int(core) for core in part.split(",")) for part in text.split("/")]
    except ValueError:
        parts = []
    if len(parts) != 2 or not (parts[0] | parts[1]) <= os.sched_getaffinity(0):
        raise click.BadParameter(
            f"expected ENGINE/HTTP with cores of this machine, e.g. 0/1, got {text!r}"
        )
    return Cores(*parts)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--clients", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--prompts", default="fixed:32", show_default=True)
@click.option("--outputs", default="fixed:64", show_default=True)
@click.option(
    "--cores",
    help="Cores as ENGINE/HTTP, e.g. 0/1; the client shares the HTTP cores.",
)
@command.output("the rounds")
@click.argument("engine_options", nargs=-1, type=click.UNPROCESSED)
def main(
    rounds: int,
    clients: int,
    prompts: str,
    outputs: str,
    cores: str | None,
    output: Path | None,
    engine_options: Sequence[str],
) -> None:
    """Measure with ENGINE_OPTIONS of `glm serve`; exit with 1 when a limit is missed."""
    chosen = parse_cores(cores)
    with command.errors_in_one_line("tools.bench.serving"):
        target = prepare_target(output) if output else None
    requests = ["--prompts", prompts, "--outputs", outputs, "--requests", str(clients)]
    requests += ["--rate", "inf", "--seed", "1"]
    machine, servers, engines = report.describe_machine(), list[Point](), list[Point]()
    for _ in range(rounds):
        servers.append(at_server(requests, engine_options, chosen))
        engines.append(in_engine(requests, engine_options, chosen))
    series = {"server": servers, "engine": engines}
    method = f"{METHOD} By turns; medians of {rounds} rounds."
    section = Section("serving", "Serving", method, figures_of(servers, engines), series)
    report.print_section(section)
    report.finish("python -m tools.bench.serving", machine, [section], target)


if __name__ == "__main__":
    main()
