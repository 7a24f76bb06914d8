"""`python -m tools.bench.peers FOLDER`: measure the engines, or show what was measured."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from glm_engine.core.errors import GlmError
from tools.bench.peers import checkpoint, loads, picture, results
from tools.bench.peers.decode import BATCHES, Meter
from tools.bench.peers.servers import SERVERS, Place, running, version_of
from tools.bench.report import markdown

CONFIG = "glm-4.5-air-fp8"
DECODE = "decode"


def by_engine(
    _context: click.Context, _parameter: click.Parameter, stated: Sequence[str]
) -> dict[str, str]:
    """The values of an option of the form ENGINE=VALUE."""
    found = {}
    for text in stated:
        name, is_there, value = text.partition("=")
        if not is_there or name not in SERVERS:
            known = ", ".join(SERVERS)
            raise click.BadParameter(f"expected ENGINE=VALUE with one of {known}, got {text!r}")
        found[name] = value
    return found


def batch_sizes(_context: click.Context, _parameter: click.Parameter, text: str) -> list[int]:
    if not all(one.isdecimal() and int(one) for one in text.split(",")):
        raise click.BadParameter(f"expected numbers such as 1,8,64, got {text!r}")
    return [int(one) for one in text.split(",")]


def measure(
    name: str, place: Place, folder: Path, batches: Sequence[int], only: Sequence[str]
) -> None:
    """Start an engine's server, measure it, and write a file for each part."""
    version = version_of(name, place)
    num_ids = json.loads((place.checkpoint / "config.json").read_text())["vocab_size"]
    with running(name, place, folder / f"{name}.log") as url:
        if DECODE in only:
            meter = Meter(url, num_ids, seed=1)
            rows = [meter.row(batch) for batch in batches]
            now = datetime.now(UTC).isoformat(timespec="seconds")
            content = {"version": version, "date": now, "rows": rows}
            (folder / f"{name}-{DECODE}.json").write_text(json.dumps(content, indent=1) + "\n")
        for load in [load for load in loads.LOADS if load in only]:
            loads.send(url, loads.LOADS[load], folder / f"{name}-{load}.json")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--checkpoint",
    "checkpoint_path",
    type=click.Path(path_type=Path),
    help=f"Measure with this checkpoint; random weights of {CONFIG} are written if it is missing.",
)
@click.option("--engine", "engines", multiple=True, type=click.Choice(list(SERVERS)))
@click.option("--python", "pythons", multiple=True, callback=by_engine, metavar="ENGINE=PATH")
@click.option("--options", multiple=True, callback=by_engine, metavar="ENGINE=WORDS")
@click.option("--batch", "batches", default=",".join(map(str, BATCHES)), callback=batch_sizes)
@click.option("--only", multiple=True, type=click.Choice([DECODE, *loads.LOADS]))
@click.option("--port", default=8765, show_default=True)
@click.option("--device", default="one NVIDIA H200", show_default=True, help="For the picture.")
@click.option("--picture", "drawn", type=click.Path(path_type=Path), help="PATH.png and PATH.svg.")
def main(
    folder: Path,
    checkpoint_path: Path | None,
    engines: Sequence[str],
    pythons: Mapping[str, str],
    options: Mapping[str, str],
    batches: Sequence[int],
    only: Sequence[str],
    port: int,
    device: str,
    drawn: Path | None,
) -> None:
    """Measure each engine into FOLDER with --checkpoint, then print the tables of FOLDER.

    Each engine serves the same checkpoint with its defaults and at most 256 sequences, one after
    the other on this machine; none of them uses drafts. --python names the Python of the
    environment in which an engine is installed, --options adds words to its server's command.
    """
    try:
        if checkpoint_path is not None:
            folder.mkdir(parents=True, exist_ok=True)
            if not (checkpoint_path / "config.json").exists():
                checkpoint.write(checkpoint_path, CONFIG)
            for name in engines or SERVERS:
                words = tuple(shlex.split(options.get(name, "")))
                python = pythons.get(name, sys.executable)
                place = Place(checkpoint_path.resolve(), port, python, words)
                measure(name, place, folder, batches, only or [DECODE, *loads.LOADS])
        show(results.read(folder), device, drawn)
    except GlmError as error:
        raise click.ClickException(str(error)) from error


def show(sides: dict[str, results.Side], device: str, drawn: Path | None) -> None:
    for table in (results.decode_table, results.load_table, results.flood_table):
        if len(made := table(sides)) > 1:
            click.echo("\n".join(markdown(made)) + "\n")
    if drawn is not None:
        picture.draw(sides, device, drawn)


if __name__ == "__main__":
    main()
