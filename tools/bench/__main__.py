"""`python -m tools.bench`: measure, print, write build/bench, fail when a limit is missed."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tools.bench import decoding, index, machine, memory, planning, plots, report
from tools.bench.processes import ROOT

SECTIONS = {
    "planning": planning.run,
    "index": index.run,
    "memory": memory.run,
    "decoding": decoding.run,
}
FOLDER = ROOT / "build" / "bench"
MISSED, NO_MEASURE = 1, 2


def command_line() -> str:
    return " ".join(["scons bench", *sys.argv[1:]])


def write(folder: Path, described: dict, sections: list) -> None:
    """acceptance.json, acceptance.md and the plots."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [path for section in sections for path in plots.draw(section, folder)]
    text = report.as_json(command_line(), described, sections)
    (folder / "acceptance.json").write_text(text, encoding="utf-8")
    page = report.as_markdown(command_line(), described, sections, drawn)
    (folder / "acceptance.md").write_text(page, encoding="utf-8")


def require_packages(names: Sequence[str]) -> None:
    wanted = ["matplotlib", *(["torch", "transformers"] if "decoding" in names else [])]
    absent = [name for name in wanted if not machine.is_installed(name)]
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
    help="Folder for the results [default: build/bench].",
)
def main(names: Sequence[str], output: Path | None) -> None:
    """Measure the acceptance figures; exit with 1 when a limit is missed."""
    chosen = names or tuple(SECTIONS)
    require_packages(chosen)
    described, sections = machine.describe(), []
    for name in chosen:
        sections.append(SECTIONS[name]())
        report.print_section(sections[-1])
    if output or not names:
        write(output or FOLDER, described, sections)
    failures = report.missed(sections)
    for figure in failures:
        name, value, limit, *_ = report.row(figure)
        click.echo(f"missed: {name}: {value}, limit {limit}", err=True)
    sys.exit(MISSED if failures else 0)


if __name__ == "__main__":
    main()
