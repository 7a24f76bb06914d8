"""`python -m tools.bench`: measure, print, write a report, fail when a limit is missed."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from glm_engine.core.files import prepare_target
from tools.bench import decoding, index, memory, planning, report
from tools.bench.processes import ROOT

SECTIONS = {
    "planning": planning.run,
    "index": index.run,
    "memory": memory.run,
    "decoding": decoding.run,
}
REPORT = ROOT / "build" / "bench" / "acceptance.json"
NO_MEASURE = 2


def is_installed(name: str) -> bool:
    return find_spec(name) is not None


def require_packages(names: Sequence[str]) -> None:
    wanted = ("torch", "transformers") if "decoding" in names else ()
    absent = [name for name in wanted if not is_installed(name)]
    if absent:
        command = "tools/develop --with oracle scons bench"
        click.echo(f"not installed: {', '.join(absent)}; run `{command}`", err=True)
        sys.exit(NO_MEASURE)


@click.command()
@click.option(
    "--only",
    "names",
    multiple=True,
    type=click.Choice(list(SECTIONS)),
    help="Measure only these sections; without --output, write nothing.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Write the figures to this file as JSON [default: build/bench/acceptance.json].",
)
def main(names: Sequence[str], output: Path | None) -> None:
    """Measure the acceptance figures; exit with 1 when a limit is missed."""
    chosen = names or tuple(SECTIONS)
    require_packages(chosen)
    target = prepare_target(output or REPORT) if output or not names else None
    machine, sections = report.describe_machine(), []
    for name in chosen:
        sections.append(SECTIONS[name]())
        report.print_section(sections[-1])
    report.finish("scons bench", machine, sections, target)


if __name__ == "__main__":
    main()
