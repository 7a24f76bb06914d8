"""`python -m tools.bench.serving`: the acceptance figures of a server, beside their limits."""

import json
import os
import sys
from pathlib import Path

import click

from glm_engine.errors import BadInputError
from glm_engine.files import prepare_target, write_whole
from tools.bench import machine, report
from tools.bench.figures import Section
from tools.bench.serving.limits import METHOD, figures_of
from tools.bench.serving.sides import Cores, at_server, in_engine


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
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write the rounds to this file as JSON."
)
@click.argument("engine_options", nargs=-1, type=click.UNPROCESSED)
def main(rounds, clients, prompts, outputs, cores, output, engine_options) -> None:
    """Measure with ENGINE_OPTIONS of `glm serve`; exit with 1 when a limit is missed."""
    chosen = parse_cores(cores)
    if output is not None:
        try:
            prepare_target(output)
        except BadInputError as error:
            raise click.BadParameter(str(error)) from error
    requests = ["--prompts", prompts, "--outputs", outputs, "--requests", str(clients)]
    requests += ["--rate", "inf", "--seed", "1"]
    servers, engines = [], []
    for _ in range(rounds):
        servers.append(at_server(requests, engine_options, chosen))
        engines.append(in_engine(requests, engine_options, chosen))
    series = {"server": servers, "engine": engines}
    method = f"{METHOD} By turns; medians of {rounds} rounds."
    section = Section("serving", "Serving", method, figures_of(servers, engines), series)
    report.print_section(section)
    if output is not None:
        command = " ".join(["python -m tools.bench.serving", *sys.argv[1:]])
        content = report.as_json(command, machine.describe(), [section])
        write_whole(output, (json.dumps(json.loads(content), indent=1) + "\n").encode())
    sys.exit(1 if report.missed([section]) else 0)


if __name__ == "__main__":
    main()
