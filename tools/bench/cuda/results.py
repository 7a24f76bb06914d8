"""What a run on a GPU left behind: reports of `glm bench`, lines of `tools.bench.kernels`."""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from tools.bench.kernels.report import Line
from tools.bench.report import without_folders

REPORTS, LOADINGS, KERNELS = "air-*.json", "loading-*.json", "kernels.json"
WITH_PATHS = ("command", "model")
LONGEST_RUN = timedelta(hours=1)


class ResultsError(ValueError):
    """The files do not make a page."""


@dataclass(frozen=True)
class Kernels:
    """kernels.json: command, machine, ceilings a second, lines."""

    command: str
    machine: dict
    ceilings: dict[str, float | None]
    lines: list[Line]


@dataclass(frozen=True)
class Results:
    """Reports of whole steps by file name, of loading, and the kernel table where there is one."""

    reports: dict[str, dict]
    loadings: dict[str, dict] = field(default_factory=dict)
    kernels: Kernels | None = None

    @property
    def decode(self) -> list[dict]:
        """Decode points that were measured, by context and batch."""
        rows = [row for report in self.reports.values() for row in report["decode"]]
        measured = [row for row in rows if "skipped" not in row]
        return sorted(measured, key=lambda row: (row["context"], row["batch"]))

    @property
    def prefill(self) -> list[dict]:
        """The fastest run of each length."""
        rows = [row for report in self.reports.values() for row in report["prefill"]]
        best: dict[int, dict] = {}
        for row in sorted((row for row in rows if "skipped" not in row), key=seconds_of):
            best.setdefault(row["tokens"], row)
        return [best[length] for length in sorted(best)]

    @property
    def first(self) -> dict:
        return next(iter(self.reports.values()))

    def as_report(self) -> dict:
        """One report with every decode point, as `glm bench` draws it."""
        return {**self.first, "decode": self.decode, "prefill": self.prefill}


def seconds_of(row: dict) -> float:
    return row["seconds"]


def read_json(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: {error}") from error
    named = {key: content[key] for key in WITH_PATHS if key in content}
    return {**content, **{key: without_folders(text) for key, text in named.items()}}


def named(files: list[Path]) -> dict[str, dict]:
    """Contents by file name; a name that comes twice is refused."""
    contents: dict[str, dict] = {}
    for path in sorted(files):
        if path.name in contents:
            raise ResultsError(f"{path.name} exists twice, also at {path}")
        contents[path.name] = read_json(path)
    return contents


def as_kernels(content: dict) -> Kernels:
    lines = [Line(**line) for line in content["lines"]]
    return Kernels(content["command"], content["machine"], content["ceilings"], lines)


def machine_of(report: dict) -> tuple[str, str, int]:
    return report["engine"]["device"], report["python"], report["cores"]


def require_one_run(reports: dict[str, dict]) -> None:
    """Refuses reports of two machines, or so far apart that they are of two runs."""
    (first_name, first), *others = reports.items()
    for name, report in others:
        if machine_of(report) != machine_of(first):
            raise ResultsError(f"{name} is from another machine than {first_name}")
        dates = [datetime.fromisoformat(one["date"]) for one in (first, report)]
        if abs(dates[1] - dates[0]) > LONGEST_RUN:
            raise ResultsError(
                f"{name} ({dates[1]}) and {first_name} ({dates[0]}) are from two runs: expected "
                f"reports of one commit on one machine, at most {LONGEST_RUN} apart"
            )


def read(folders: list[Path]) -> tuple[Results, dict[str, dict]]:
    """(results of all folders, the files that they came from by name)."""
    found = {
        pattern: named([path for folder in folders for path in folder.rglob(pattern)])
        for pattern in (REPORTS, LOADINGS, KERNELS)
    }
    if not found[REPORTS]:
        raise ResultsError(f"no {REPORTS} of `glm bench` in {', '.join(map(str, folders))}")
    require_one_run(found[REPORTS] | found[LOADINGS])
    tables = [as_kernels(content) for content in found[KERNELS].values()]
    results = Results(found[REPORTS], found[LOADINGS], *tables)
    return results, {name: content for files in found.values() for name, content in files.items()}
