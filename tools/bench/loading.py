"""`python -m tools.bench.loading`: seconds of loading a checkpoint with one rank and with several.

A checkpoint of repeated random data is written to disk; each load has a process of its own, which
loaded `capitals` before. `disk`: the kernel was told to forget the files; `memory`: it had just
read them. What the disk gave is `read_bytes` of /proc/self/io, of all ranks together.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from glm_engine.bench.costs import SYNTHETIC, config_path
from glm_engine.cli import options
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from tools.bench.mixed import AIR
from tools.bench.one_line import errors_in_one_line
from tools.bench.processes import WorkerError, ask_once
from tools.checkpoint.shards import CheckpointWriteError
from tools.checkpoint.synthetic import cut_config, write_repeated_checkpoint

WORKER = "tools.bench.loading_worker"
NUM_SHARDS = 4
SEED = 0
GIGA = 1e9
TITLES = ("ranks", "files in", "seconds", "GB/s", "GB from disk", "of the files")


def write_checkpoint(folder: Path, model: str, num_layers: int) -> int:
    """Bytes of the shards."""
    config = read_object(config_path(model))
    try:
        known = config["num_hidden_layers"]
        if num_layers > known:
            raise BadInputError(f"{model}: --layers is {num_layers}, the model has {known}")
        write_repeated_checkpoint(folder, cut_config(config, num_layers), SEED, NUM_SHARDS)
    except KeyError as error:
        raise BadInputError(f"{model}: expected {error} in its config.json, found none") from error
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def measured(folder: Path, is_cold: bool, chosen: dict) -> dict:
    question = {"folder": str(folder), "is_cold": is_cold, "options": chosen}
    told = ask_once(WORKER, json.dumps(question))
    if "error" in told:
        raise BadInputError(told["error"])
    return told


def line_of(*cells: str) -> str:
    return "  ".join(cell.rjust(len(title)) for title, cell in zip(TITLES, cells, strict=True))


def row(world_size: int, is_cold: bool, told: dict, num_bytes: int) -> str:
    from_disk = told["bytes_from_disk"]
    return line_of(
        f"{world_size}",
        "disk" if is_cold else "memory",
        f"{told['seconds']:.2f}",
        f"{num_bytes / told['seconds'] / GIGA:.2f}",
        f"{from_disk / GIGA:.3f}",
        f"{100 * from_disk / num_bytes:.1f} %",
    )


def measure(folder: Path, num_bytes: int, worlds: Sequence[int], chosen: dict, shared: int) -> None:
    click.echo("  ".join(TITLES))
    for world_size in worlds:
        sharing = shared if world_size > 1 else 1
        ranks = {"world_size": world_size, "ranks_per_device": sharing}
        for is_cold in (True, False):
            told = measured(folder, is_cold, {**chosen, **ranks})
            click.echo(row(world_size, is_cold, told, num_bytes))


@click.command()
@click.option("--synthetic", "model", default=AIR, show_default=True, help=", ".join(SYNTHETIC))
@click.option("--layers", "num_layers", type=options.POSITIVE, default=4, show_default=True)
@click.option("--device", type=click.Choice(options.DEVICES), default="auto", show_default=True)
@click.option("--world-size", type=click.Choice(["2", "4", "8"]), default="2", show_default=True)
@click.option(
    "--ranks-per-device",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="Ranks on each GPU; set it to the number of ranks to run all of them on one GPU.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for the checkpoint.")
def main(model, num_layers, device, world_size, ranks_per_device, folder) -> None:
    """Prints a line for one rank and for several, from the disk and from the kernel's memory."""
    with (
        errors_in_one_line("tools.bench.loading", CheckpointWriteError, WorkerError, OSError),
        TemporaryDirectory(dir=folder, prefix="loading-") as made,
    ):
        num_bytes = write_checkpoint(Path(made), model, num_layers)
        click.echo(f"{model} cut to {num_layers} layers: {num_bytes / GIGA:.2f} GB of shards")
        worlds = (1, int(world_size))
        measure(Path(made), num_bytes, worlds, {"device": device}, ranks_per_device)


if __name__ == "__main__":
    main()
