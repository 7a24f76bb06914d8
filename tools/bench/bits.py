"""`python -m tools.bench.bits`: the ledger of bits, hashes of all that an engine computes.

`record` runs the models of `tests/data/bits/models.json` through the C ABI and writes a row of
hashes for each course; `compare` names the rows in which two ledgers differ.
"""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from glm_engine.engine import Engine, EngineOptions
from glm_engine.errors import BadInputError, EngineError, Status, name_of
from glm_engine.files import prepare_target, read_object, write_whole
from glm_engine.libraries import find_engine_library
from tools.bench.bits_courses import COURSES, Recorder, Row, engine_options
from tools.bench.bits_models import Model, Run, hash_of_files, models, runs_of
from tools.bench.one_line import errors_in_one_line

TOOL = "tools.bench.bits"
NUM_SHOWN = 20
REFUSALS = (
    Status.GLM_NOT_SUPPORTED,
    Status.GLM_INVALID_ARGUMENT,
    Status.GLM_INVALID_CHECKPOINT,
    Status.GLM_NUMERIC_ERROR,
)
ONLY = "Only rows whose name contains TEXT (repeatable: one of them)."


def is_wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def say(text: str) -> None:
    click.echo(text, err=True)


def rows_of_run(model: Model, run: Run, place: Path, extra: dict) -> Iterator[tuple[str, Row]]:
    """The rows of one engine; what it refuses is a row that says so, and the last one."""
    device = extra["device"]
    courses = COURSES[device, model.courses]
    chosen = courses.options() | engine_options(run.options) | extra
    chosen |= {"synthetic": bool(model.synthetic), "num_layers": model.num_layers or None}
    name = "opened"
    try:
        with Engine(EngineOptions(place, **chosen)) as engine:
            recorder = Recorder(engine)
            for name, compute in recorder.rows(courses):
                yield f"{run.label} {name}", compute()
    except EngineError as error:
        if error.status not in REFUSALS:
            raise
        say(f"{run.label} {name}: {error}")
        yield f"{run.label} {name}", {"refused": name_of(error.status)}
        return
    for remark in recorder.remarks:
        say(f"{run.label}: {remark}")


def record_model(model: Model, num_gpus: int, only: Sequence[str], extra: dict) -> dict[str, Row]:
    """All rows of a model whose runs are wanted."""
    device = extra["device"]
    runs = [run for run in runs_of(model, device, num_gpus) if is_wanted(run.label, only)]
    if not runs or not model.runs_on(device):
        return {}
    with TemporaryDirectory(prefix="bits-") as folder:
        place = model.open_from(Path(folder))
        rows = {f"{model.name} files": {"files": hash_of_files(place)}}
        for run in runs:
            began = time.monotonic()
            rows |= dict(rows_of_run(model, run, place, extra))
            say(f"{run.label}: {time.monotonic() - began:.1f} s")
    return rows


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


@main.command()
@click.argument("output", type=click.Path(path_type=Path))
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option(
    "--gpus",
    "num_gpus",
    type=click.Choice(["1", "2", "4", "8"]),
    default="1",
    show_default=True,
    help="Number of ranks with --device cuda; the CPU runs 1, 2, 4 and 8.",
)
@click.option("--num-threads", type=click.IntRange(1), help="CPU threads of all ranks together.")
@click.option("--only", multiple=True, metavar="TEXT", help=ONLY)
def record(output, device, num_gpus, num_threads, only) -> None:
    """Writes the ledger OUTPUT of this checkout's build."""
    with errors_in_one_line(TOOL, OSError):
        target, rows = prepare_target(output), {}
        extra = {"device": device, "num_threads": num_threads}
        say(f"recording {find_engine_library().path}")
        for model in models():
            found = record_model(model, int(num_gpus), only, extra)
            if found:
                rows |= found
                write_ledger(rows, target)
        if not rows:
            raise BadInputError(f"no run has a name with one of: {', '.join(only)}")
    refused = sum("refused" in row for row in rows.values())
    click.echo(f"{output}: {len(rows)} rows, {refused} of them refusals")


@main.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--only", multiple=True, metavar="TEXT", help=ONLY)
def compare(first, second, only) -> None:
    """Names the rows in which two ledgers differ; ends with 1 where there are some."""
    with errors_in_one_line(TOOL, OSError):
        kept, found = (
            {name: row for name, row in read_object(path).items() if is_wanted(name, only)}
            for path in (first, second)
        )
        said = differences(kept, found)
        for line in said[:NUM_SHOWN]:
            click.echo(line)
        num_equal = sum(kept[name] == found.get(name) for name in kept)
        click.echo(f"{num_equal} rows are equal, {len(said)} differ or are missing")
    sys.exit(1 if said or not num_equal else 0)


if __name__ == "__main__":
    main()
