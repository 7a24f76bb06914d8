"""The table on the terminal, and the same as JSON and Markdown."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.bench.figures import Figure, Section, readable, readable_limit

WIDTH = 140
KEPT, MISSED = "kept", "missed"


def verdict(figure: Figure) -> str:
    if figure.limit is None:
        return ""
    return KEPT if figure.is_kept else MISSED


def row(figure: Figure) -> tuple[str, str, str, str, str]:
    """Name, value, limit, verdict and note as text."""
    value = readable(figure.value, figure.unit)
    return figure.name, value, readable_limit(figure), verdict(figure), figure.note


def print_section(section: Section) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=section.title, title_justify="left", box=None, header_style="bold")
    for name, side in (("figure", "left"), ("value", "right"), ("limit", "right"), ("", "left")):
        table.add_column(name, justify=side, no_wrap=side == "right")
    table.add_column("note", overflow="fold")
    styles = {MISSED: "bold red", KEPT: "green"}
    for figure in section.figures:
        table.add_row(*row(figure), style=styles.get(verdict(figure)))
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(highlight=False, markup=False, width=width)
    console.print(table, "")


def missed(sections: list[Section]) -> list[Figure]:
    return [figure for section in sections for figure in section.figures if not figure.is_kept]


def as_json(command: str, machine: dict, sections: list[Section]) -> str:
    content = {
        "command": command,
        "machine": machine,
        "sections": [section.as_dict() for section in sections],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def without_folders(text: str) -> str:
    """The text with the last part of each absolute path alone."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in text.split())


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def machine_lines(command: str, machine: dict) -> list[str]:
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    cores, memory = machine["cores"], machine["memory_gib"]
    rows = [
        ("command", f"`{command}`"),
        ("date", machine["date"]),
        ("commit", machine["commit"]),
        ("machine", f"{machine['processor']}, {cores} cores, {memory} GiB, {machine['system']}"),
        ("load average at the start", str(machine["load_average"])),
        ("versions", versions),
    ]
    return markdown_table(("", ""), rows)


def as_markdown(command: str, machine: dict, sections: list[Section], plots: list[Path]) -> str:
    """A page with the machine, a table for each section with its method, and its plot."""
    lines = ["# Acceptance figures on the CPU device", "", *machine_lines(command, machine)]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.method, ""]
        rows = [row(figure) for figure in section.figures]
        lines += markdown_table(("figure", "value", "limit", "", "note"), rows)
        lines += [
            line
            for plot in plots
            if plot.stem == f"acceptance-{section.name}" and plot.suffix == ".svg"
            for line in ("", f"![{section.title}]({plot.name})")
        ]
    return "\n".join(lines) + "\n"
