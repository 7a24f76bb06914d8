"""A measured number beside the limit that it must keep: on the terminal, as JSON, in a table."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum

WIDTH = 140
KEPT, MISSED = "kept", "missed"
Table = Sequence[Sequence[str]]
"""Rows of cells; the first row holds the titles."""


class Bound(Enum):
    """On which side of its limit a figure must lie."""

    AT_MOST = "≤"
    AT_LEAST = "≥"
    NONE = ""


@dataclass(frozen=True)
class Figure:
    """One row of the table. `limit` is None where the number is for information."""

    name: str
    value: float
    unit: str
    bound: Bound = Bound.NONE
    limit: float | None = None
    note: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether the limit holds; a number that is none (NaN) keeps no limit."""
        if self.bound is Bound.AT_MOST:
            return self.value <= self.limit
        if self.bound is Bound.AT_LEAST:
            return self.value >= self.limit
        return True

    def as_dict(self) -> dict:
        return {**asdict(self), "bound": self.bound.value, "is_kept": self.is_kept}


@dataclass(frozen=True)
class Section:
    """The figures of one benchmark, how they came about, and what was measured."""

    name: str
    title: str
    method: str
    figures: Sequence[Figure]
    series: dict

    def as_dict(self) -> dict:
        return {**asdict(self), "figures": [figure.as_dict() for figure in self.figures]}


def readable(value: float, unit: str) -> str:
    """A number with four significant digits, whole from 1,000 on, and its unit."""
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{digits} {unit}".strip()


def readable_limit(figure: Figure) -> str:
    if figure.bound is Bound.NONE:
        return ""
    return f"{figure.bound.value} {readable(figure.limit, figure.unit)}"


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


def as_dict(command: str, machine: dict, sections: list[Section]) -> dict:
    made = [section.as_dict() for section in sections]
    return {"command": command, "machine": machine, "sections": made}


def markdown(table: Table) -> list[str]:
    titles, *rows = ["| " + " | ".join(cells) + " |" for cells in table]
    return [titles, "|" + "---|" * len(table[0]), *rows]


def counted(first: str, form: str, counts: Sequence[int]) -> Sequence[str]:
    """The titles of a table whose columns are counts, of which the first says what is counted."""
    numbers = [f"{count:,}" for count in counts]
    return first, *(form.format(number) for number in numbers[:1]), *numbers[1:]
