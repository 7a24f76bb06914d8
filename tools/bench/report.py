"""A measured number beside the limit that it must keep: on the terminal, as JSON, in a table.

A report also states the machine: processor, memory, versions, commit.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from glm_engine.core.console import make_table, print_table
from glm_engine.core.files import write_report
from tools.bench.processes import ROOT

KEPT, MISSED = "kept", "missed"
PACKAGES = ("numpy", "torch", "transformers", "llvmlite")
Table = Sequence[Sequence[str]]
"""Rows of cells; the first row holds the titles."""


class Bound(Enum):
    """On which side of its limit a figure must lie."""

    AT_MOST = "≤"
    AT_LEAST = "≥"


@dataclass(frozen=True)
class Figure:
    """One row of the table. `limit` is None where the number is for information."""

    name: str
    value: float
    unit: str
    bound: Bound = Bound.AT_MOST
    limit: float | None = None
    note: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether the limit holds; a number that is none (NaN) keeps no limit."""
        if self.limit is None:
            return True
        if self.bound is Bound.AT_MOST:
            return self.value <= self.limit
        return self.value >= self.limit

    def as_dict(self) -> dict[str, Any]:
        bound = "" if self.limit is None else self.bound.value
        return {**asdict(self), "bound": bound, "is_kept": self.is_kept}


@dataclass(frozen=True)
class Section:
    """The figures of one benchmark, how they came about, and what was measured."""

    name: str
    title: str
    method: str
    figures: Sequence[Figure]
    series: Mapping[str, object]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "figures": [figure.as_dict() for figure in self.figures]}


def readable(value: float, unit: str) -> str:
    """A number with four significant digits, whole from 1,000 on, and its unit."""
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{digits} {unit}".strip()


def row(figure: Figure) -> tuple[str, str, str, str, str]:
    """Name, value, limit, verdict and note as text."""
    limit = verdict = ""
    if figure.limit is not None:
        limit = f"{figure.bound.value} {readable(figure.limit, figure.unit)}"
        verdict = KEPT if figure.is_kept else MISSED
    return figure.name, readable(figure.value, figure.unit), limit, verdict, figure.note


def print_section(section: Section) -> None:
    table = make_table("figure", ">value", ">limit", "", "note", title=section.title)
    styles = {MISSED: "bold red", KEPT: "green"}
    for cells in map(row, section.figures):
        table.add_row(*cells, style=styles.get(cells[3]))
    print_table(table)
    print()


def missed(sections: Iterable[Section]) -> list[Figure]:
    return [figure for section in sections for figure in section.figures if not figure.is_kept]


def as_dict(
    command: str, machine: Mapping[str, object], sections: Iterable[Section]
) -> dict[str, Any]:
    made = [section.as_dict() for section in sections]
    return {"command": command, "machine": machine, "sections": made}


def finish(
    tool: str, machine: Mapping[str, object], sections: Sequence[Section], target: Path | None
) -> None:
    """Write the report where a target is given, and end with 1 if a figure misses its limit."""
    if target is not None:
        write_report(as_dict(" ".join([tool, *sys.argv[1:]]), machine, sections), target)
    for figure in missed(sections):
        name, value, limit, *_ = row(figure)
        print(f"missed: {name}: {value}, limit {limit}", file=sys.stderr)
    sys.exit(1 if missed(sections) else 0)


def markdown(table: Table) -> list[str]:
    titles, *rows = ["| " + " | ".join(cells) + " |" for cells in table]
    return [titles, "|" + "---|" * len(table[0]), *rows]


def counted(first: str, form: str, counts: Sequence[int]) -> Sequence[str]:
    """The titles of a table whose columns are counts, of which the first says what is counted."""
    numbers = [f"{count:,}" for count in counts]
    return first, *(form.format(number) for number in numbers[:1]), *numbers[1:]


def proc_field(path: str, name: str) -> str:
    """The value of the first line `name: value` of a file of /proc."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    raise ValueError(f"{path} has no field {name!r}")


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit() -> str:
    """The commit that is checked out, and whether tracked files differ from it."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/benchmarks")
    return git("rev-parse", "HEAD") + (" with changes" if changed else "")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def describe_machine() -> dict[str, object]:
    """Processor, cores, memory, system, versions, commit, date and load of this machine."""
    return {
        "date": now(),
        "commit": commit(),
        "processor": proc_field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(proc_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[0], 2),
        "versions": package_versions(),
    }
