"""`python -m tools.bench.bits`: the ledger of bits, hashes of all that an engine computes.

`record` runs the models of `tests/data/bits/models.json` through the C ABI and writes a row of
hashes for each course; `memory` loads them and writes a row of hashes of the weights; `compare`
names the rows in which two ledgers differ.
"""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from glm_engine.core.engine import Engine, EngineOptions
from glm_engine.core.errors import BadInputError, EngineError
from glm_engine.core.files import prepare_target, read_object, write_whole
from glm_engine.core.libraries import find_engine_library
from tools.bench.bits_courses import COURSES, Recorder, Row, engine_options
from tools.bench.bits_memory import debug_library, memory_models, memory_runs, weights_of
from tools.bench.bits_models import Model, Options, Run, hash_of_files, models, runs_of
from tools.bench.command import errors_in_one_line

TOOL = "tools.bench.bits"
NUM_SHOWN = 20
FILES = "files"
ONLY = "Only rows whose name contains TEXT (repeatable: one of them)."


def is_wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def say(text: str) -> None:
    click.echo(text, err=True)


@dataclass
class Ledger:
    """Rows by name, and a line for each engine that has failed; `extra` are options of all."""

    extra: Options
    num_gpus: int
    rows: dict[str, Row] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def device(self) -> str:
        return str(self.extra["device"])

    def runs(self, model: Model) -> Iterable[Run]:
        return runs_of(model, self.device, self.num_gpus)

    def add_model(self, model: Model, only: Sequence[str]) -> None:
        """Record the runs of a model that are wanted."""
        runs = [run for run in self.runs(model) if is_wanted(run.label, only)]
        if not runs or not model.runs_on(self.device):
            return
        with TemporaryDirectory(prefix="bits-") as folder:
            place = model.open_from(Path(folder))
            self.rows[f"{model.name} files"] = {FILES: hash_of_files(place)}
            for run in runs:
                began = time.monotonic()
                self.add_run(model, run, place)
                say(f"{run.label}: {time.monotonic() - began:.1f} s")

    def add_run(self, model: Model, run: Run, place: Path) -> None:
        """Record one engine; the first course that it fails in is the last.

        Raises `EngineError` where no engine before it has given a row.
        """
        chosen: Options = {
            "synthetic": bool(model.synthetic),
            "num_layers": model.num_layers or None,
        }
        chosen |= self.options(model, run) | self.extra
        try:
            with Engine(EngineOptions(place, **chosen)) as engine:
                self.add_rows(model, run, engine)
        except EngineError as error:
            if not num_computed(self.rows):
                raise
            self.failures.append(f"{run.label}: {error}")
            say(self.failures[-1])

    def options(self, model: Model, run: Run) -> Options:
        return COURSES[self.device, model.courses].options() | engine_options(run.options)

    def add_rows(self, model: Model, run: Run, engine: Engine) -> None:
        recorder = Recorder(engine)
        for name, compute in recorder.rows(COURSES[self.device, model.courses]):
            self.rows[f"{run.label} {name}"] = compute()
        for remark in recorder.remarks:
            say(f"{run.label}: {remark}")


class MemoryLedger(Ledger):
    """One row an engine: the hash of each rank's weights, and their bytes."""

    def runs(self, model: Model) -> Iterable[Run]:
        return memory_runs(model, self.device, self.num_gpus)

    def options(self, _model: Model, run: Run) -> Options:
        return run.options

    def add_rows(self, _model: Model, run: Run, engine: Engine) -> None:
        self.rows[run.label] = weights_of(engine)


def num_computed(rows: dict[str, Row]) -> int:
    """How many rows an engine has computed."""
    return sum(FILES not in row for row in rows.values())


def write_ledger(rows: dict[str, Row], path: Path) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    write_whole(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def differences(kept: dict[str, Row], found: dict[str, Row]) -> list[str]:
    """A line for each row that is not in both, or not the same in both."""
    said = []
    for name in sorted(kept.keys() | found.keys()):
        if name not in found or name not in kept:
            said.append(f"{name}: only in the {'first' if name in kept else 'second'}")
        elif kept[name] != found[name]:
            parts = sorted(kept[name].keys() | found[name].keys())
            apart = [one for one in parts if kept[name].get(one) != found[name].get(one)]
            said.append(f"{name}: {', '.join(apart)} differ")
    return said


@click.group()
def main() -> None:
    """Keeps hashes of what an engine computes, and compares them."""


def record_models(ledger: Ledger, chosen: list[Model], only: Sequence[str], output: Path) -> None:
    """Write the ledger after each model; end with 1 where an engine failed."""
    target = prepare_target(output)
    for model in chosen:
        ledger.add_model(model, only)
        if ledger.rows:
            write_ledger(ledger.rows, target)
    if not ledger.rows:
        raise BadInputError(f"no run has a name with one of: {', '.join(only)}")
    click.echo(f"{output}: {len(ledger.rows)} rows, {len(ledger.failures)} engines failed")
    sys.exit(1 if ledger.failures else 0)


OUTPUT = click.argument("output", type=click.Path(path_type=Path))
DEVICE = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True
)
GPUS = click.option(
    "--gpus",
    "num_gpus",
    type=click.Choice(["1", "2", "4", "8"]),
    default="1",
    show_default=True,
    help="Number of ranks with --device cuda; the CPU runs 1, 2, 4 and 8.",
)
WANTED = click.option("--only", multiple=True, metavar="TEXT", help=ONLY)


@main.command()
@OUTPUT
@DEVICE
@GPUS
@click.option("--num-threads", type=click.IntRange(1), help="CPU threads of all ranks together.")
@WANTED
def record(
    output: Path, device: str, num_gpus: str, num_threads: int | None, only: Sequence[str]
) -> None:
    """Writes the ledger OUTPUT of this checkout's build; ends with 1 where an engine failed."""
    with errors_in_one_line(TOOL, OSError):
        say(f"recording {find_engine_library().path}")
        ledger = Ledger({"device": device, "num_threads": num_threads}, int(num_gpus))
        record_models(ledger, models(), only, output)


@main.command()
@OUTPUT
@DEVICE
@GPUS
@click.option(
    "--ranks-per-device",
    type=click.IntRange(1, 8),
    help="Ranks that share a GPU; --gpus is still the number of ranks.",
)
@click.option(
    "--full-width", is_flag=True, help="Add four layers of GLM-4.5-Air, which need 10 to 20 GB."
)
@WANTED
def memory(
    output: Path,
    device: str,
    num_gpus: str,
    ranks_per_device: int | None,
    full_width: bool,
    only: Sequence[str],
) -> None:
    """Writes hashes of the weights of each rank after loading, as the debug build loads them."""
    with errors_in_one_line(TOOL, OSError), debug_library() as path:
        say(f"recording {path}")
        extra = {"device": device, "ranks_per_device": ranks_per_device}
        ledger = MemoryLedger(extra, int(num_gpus))
        record_models(ledger, memory_models(full_width), only, output)


@main.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--only", multiple=True, metavar="TEXT", help=ONLY)
def compare(first: Path, second: Path, only: Sequence[str]) -> None:
    """Names the rows in which two ledgers differ; ends with 1 where there are some."""
    with errors_in_one_line(TOOL, OSError):
        kept, found = (
            {name: row for name, row in read_object(path).items() if is_wanted(name, only)}
            for path in (first, second)
        )
        said = differences(kept, found)
        for line in said[:NUM_SHOWN]:
            click.echo(line)
        num_equal = num_computed(
            {name: kept[name] for name in kept if kept[name] == found.get(name)}
        )
        click.echo(f"{num_equal} rows are equal, {len(said)} differ or are missing")
    sys.exit(1 if said or not num_equal else 0)


if __name__ == "__main__":
    main()
