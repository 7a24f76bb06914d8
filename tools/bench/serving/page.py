"""`python -m tools.bench.serving.page FOLDER`: a page of what `glm load` measured on a machine.

FOLDER holds reports of `glm load --output`: `engine.json` (`--engine`), `one.json` (the same
requests at a server) and, where they were made, `four.json` (the same from four client processes)
and `rates.json` (request rates); and of `tools.bench.serving --output`, where it was run there:
`acceptance-cuda.json` and `acceptance-cpu.json`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from glm_engine.errors import GlmError
from glm_engine.load.plots import plot_report
from glm_engine.load.report import limits_text, rate_text, read_report
from tools.bench import machine, report
from tools.bench.figures import Figure
from tools.bench.processes import ROOT
from tools.bench.serving.limits import METHOD, figures_of

FOLDER = ROOT / "docs" / "benchmarks"
NEEDED, OPTIONAL = ("engine", "one"), ("four", "rates")
CLIENTS = {"one": "One client process", "four": "Four client processes"}
ACCEPTANCE = {
    "acceptance-cuda": "All at once",
    "acceptance-cpu": "All at once, on the processor beside the GPU",
}
RATES = (
    "Requests that arrive at a rate of their own, whatever the answers do. Latencies are those of "
    "completed requests, seen by the client."
)


def read(folder: Path) -> dict[str, dict]:
    """The reports by their names, those of `glm load` first; commands without folders."""
    names = [*NEEDED, *(name for name in OPTIONAL if (folder / f"{name}.json").exists())]
    found = {name: read_report(folder / f"{name}.json") for name in names}
    for name in ACCEPTANCE:
        if (folder / f"{name}.json").exists():
            found[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return {
        name: {**content, "command": report.without_folders(content["command"])}
        for name, content in found.items()
    }


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
            lines += [
                "",
                f"{title}, {limits_text(reports[name]['workload'])}:",
                "",
                *table_of(figures),
            ]
    for name, title in ACCEPTANCE.items():
        if name in reports:
            [section] = reports[name]["sections"]
            rounds = section["series"]
            figures = figures_of(rounds["server"], rounds["engine"])
            note = f"medians of {len(rounds['server'])} rounds by turns"
            lines += ["", f"{title}, {note}:", "", *table_of(figures)]
    return lines


def table_of(figures: Sequence[Figure]) -> list[str]:
    rows = [report.row(figure) for figure in figures]
    return report.markdown_table(("figure", "value", "limit", "", "note"), rows)


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
        if "machine" in content:
            content = {**content, "machine": {**content["machine"], "commit": commit}}
        data = json.dumps(content, indent=1) + "\n"
        (folder / f"{name}-{one}.json").write_text(data, encoding="utf-8")
    (folder / f"{name}.md").write_text(text(reports, name, commit), encoding="utf-8")
    if "rates" in reports:
        plot_report(reports["rates"], folder / f"{name}-rates")


@click.command()
@click.argument("measured", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--commit", help="Commit that was measured [default: the checked-out commit].")
@click.option("--name", default="serving-h200", show_default=True, help="Prefix of the file names.")
@click.option("--output", type=click.Path(path_type=Path), default=FOLDER)
def main(measured: Path, commit: str | None, name: str, output: Path) -> None:
    """Make the page of the reports in the folder MEASURED."""
    try:
        write(output, read(measured), name, commit or machine.commit())
    except GlmError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
