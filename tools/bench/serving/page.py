"""`python -m tools.bench.serving.page FOLDER`: a page of what `glm load` measured on a machine.

FOLDER holds reports of `glm load --output`: `engine.json` (`--engine`), `one.json` (the same
requests at a server) and, where they were made, `four.json` (the same from four client processes)
and `rates.json` (request rates).
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from glm_engine.errors import GlmError
from glm_engine.load.plots import plot_report
from glm_engine.load.report import rate_text, read_report
from tools.bench import machine, report
from tools.bench.processes import ROOT
from tools.bench.serving.limits import METHOD, figures_of

FOLDER = ROOT / "docs" / "benchmarks"
NEEDED, OPTIONAL = ("engine", "one"), ("four", "rates")
CLIENTS = {"one": "One client process", "four": "Four client processes"}
RATES = (
    "Requests that arrive at a rate of their own, whatever the answers do. Latencies are those of "
    "completed requests, seen by the client."
)


def read(folder: Path) -> dict[str, dict]:
    """The reports by their names."""
    names = [*NEEDED, *(name for name in OPTIONAL if (folder / f"{name}.json").exists())]
    return {name: read_report(folder / f"{name}.json") for name in names}


def facts(reports: dict[str, dict], name: str, commit: str) -> list[str]:
    first = reports["engine"]
    files = ", ".join(f"[{one}]({name}-{one}.json)" for one in reports)
    rows = [
        ("device", first["target"].get("device", "not recorded")),
        ("date", first["date"].replace("T", " ").replace("+00:00", " UTC")),
        ("commit", commit),
        ("model", first["target"]["model"]),
        ("python, cores", f"{first['python']}, {first['cores']}"),
        *(("command", f"`{one['command']}`") for one in reports.values()),
        ("files", files),
    ]
    return report.markdown_table(("", ""), rows)


def comparison(reports: dict[str, dict]) -> list[str]:
    """A table of limits for each number of client processes that was measured."""
    lines = ["", "## Through the server and without it", "", METHOD]
    for name, title in CLIENTS.items():
        if name in reports:
            figures = figures_of(reports[name]["points"], reports["engine"]["points"])
            rows = [report.row(figure) for figure in figures]
            table = report.markdown_table(("figure", "value", "limit", "", "note"), rows)
            lines += ["", f"{title}:", "", *table]
    return lines


def rates(points: Sequence[dict], name: str) -> list[str]:
    """A line for each request rate, and the picture."""
    titles = ("rate/s", "done", "output tokens/s", "TTFT p50, p99 ms", "TPOT p50, p99 ms")
    titles = (*titles, "ITL p99 ms", "goodput/s")
    table = report.markdown_table(titles, [rate_cells(point) for point in points])
    picture = f"![Rates]({name}-rates.svg)"
    return ["", "## Over the request rate", "", RATES, "", *table, "", picture]


def rate_cells(point: dict) -> Sequence[str]:
    def pair(name: str) -> str:
        found = point[name]
        return f"{found['p50']:,.1f}, {found['p99']:,.1f}" if found else ""

    good, gaps = point["goodput"], point["itl_ms"]
    return (
        rate_text(point),
        f"{point['num_completed']} of {point['num_asked']}",
        f"{point['output_tokens_per_second']:,.0f}",
        pair("ttft_ms"),
        pair("tpot_ms"),
        f"{gaps['p99']:,.1f}" if gaps else "",
        f"{good['requests_per_second']:,.2f}" if good else "",
    )


def text(reports: dict[str, dict], name: str, commit: str) -> str:
    device = reports["engine"]["target"].get("device", "a GPU")
    lines = [f"# Serving on one {device}", "", *facts(reports, name, commit)]
    lines += comparison(reports)
    if "rates" in reports:
        lines += rates(reports["rates"]["points"], name)
    return "\n".join(lines) + "\n"


def write(folder: Path, reports: dict[str, dict], name: str, commit: str) -> None:
    """The page, copies of the reports, and the picture of the rates."""
    folder.mkdir(parents=True, exist_ok=True)
    for one, content in reports.items():
        data = json.dumps(content, indent=1) + "\n"
        (folder / f"{name}-{one}.json").write_text(data, encoding="utf-8")
    (folder / f"{name}.md").write_text(text(reports, name, commit), encoding="utf-8")
    if "rates" in reports:
        plot_report(reports["rates"], folder / f"{name}-rates")


@click.command()
@click.argument("measured", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--commit", help="What was measured [default: what is checked out].")
@click.option("--name", default="serving-h200", show_default=True, help="How the files begin.")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER)
def main(measured: Path, commit: str | None, name: str, output: Path) -> None:
    """Make the page of the reports in the folder MEASURED."""
    try:
        write(output, read(measured), name, commit or machine.commit())
    except GlmError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
