"""`python -m tools.bench.loading`: seconds of loading a checkpoint with one rank and with several.

A checkpoint of repeated random data is written to disk; each load has a process of its own, which
loaded `capitals` before. `disk`: the kernel was told to forget the files; `memory`: it had just
read them. What the disk gave is `read_bytes` of /proc/self/io, of all ranks together.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from glm_engine.bench.costs import config_path
from glm_engine.cli.option_types import POSITIVE
from glm_engine.core.console import print_columns
from glm_engine.core.engine import Engine, EngineOptions
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from glm_engine.core.layout import CAPITALS
from tools.bench import command
from tools.bench.processes import Answer, ask_once
from tools.bench.report import proc_field
from tools.checkpoint.shards import CheckpointWriteError, write_model
from tools.checkpoint.synthetic import RepeatedTensors, cut_config

NUM_SHARDS = 4
SEED = 0
GIGA = 1e9
FAILURES = (CheckpointWriteError, BrokenExecutor, OSError)
TITLES = (">ranks", "files in", ">seconds", ">GB/s", ">GB from disk", ">of the files")


def write_checkpoint(folder: Path, model: str, num_layers: int) -> int:
    """Bytes of the shards."""
    config = read_object(config_path(model))
    try:
        known = config["num_hidden_layers"]
        if num_layers > known:
            raise BadInputError(f"{model}: --layers is {num_layers}, the model has {known}")
        cut = cut_config(config, num_layers)
        write_model(folder, cut, NUM_SHARDS, RepeatedTensors(cut, SEED))
    except KeyError as error:
        raise BadInputError(f"{model}: expected {error} in its config.json, found none") from error
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def bytes_from_disk() -> int:
    """What this process has had read from disks so far."""
    return int(proc_field("/proc/self/io", "read_bytes"))


def forget(folder: Path) -> None:
    """Tell the kernel to keep nothing of a folder's files in memory."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def remember(folder: Path) -> None:
    """Have the kernel read a folder's files."""
    for path in folder.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def load(folder: Path, **chosen: Any) -> None:
    smallest = {"max_batch": 1, "max_seq": 64, "graphs": False}
    Engine(EngineOptions(folder, **smallest | chosen)).close()


def read_by(act: Callable[[], object]) -> int:
    """The bytes that the disk gives while `act` runs."""
    before = bytes_from_disk()
    act()
    return bytes_from_disk() - before


def measure_load(folder: Path, is_cold: bool, chosen: Mapping[str, Any]) -> Answer:
    """Load `capitals` first, so that libraries, contexts and kernels are there."""
    load(CAPITALS, **chosen)
    (forget if is_cold else remember)(folder)
    begin = time.monotonic()
    num_bytes = read_by(lambda: load(folder, **chosen))
    return {"seconds": time.monotonic() - begin, "bytes_from_disk": num_bytes}


def row(world_size: int, is_cold: bool, told: Answer, num_bytes: int) -> Sequence[str]:
    from_disk = told["bytes_from_disk"]
    return (
        f"{world_size}",
        "disk" if is_cold else "memory",
        f"{told['seconds']:.2f}",
        f"{num_bytes / told['seconds'] / GIGA:.2f}",
        f"{from_disk / GIGA:.3f}",
        f"{from_disk / num_bytes:.1%}",
    )


def measure(
    folder: Path, num_bytes: int, worlds: Sequence[int], device: str, shared: int
) -> Iterator[Sequence[str]]:
    for world_size in worlds:
        sharing = shared if world_size > 1 else 1
        asked = {"device": device, "world_size": world_size, "ranks_per_device": sharing}
        for is_cold in (True, False):
            told = ask_once(measure_load, folder, is_cold, asked)
            yield row(world_size, is_cold, told, num_bytes)


@click.command()
@command.model
@click.option("--layers", "num_layers", type=POSITIVE, default=4, show_default=True)
@command.device
@click.option("--world-size", type=click.Choice(["2", "4", "8"]), default="2", show_default=True)
@command.ranks_per_device
@click.option("--folder", type=click.Path(path_type=Path), help="Folder for the checkpoint.")
def main(
    model: str,
    num_layers: int,
    device: str,
    world_size: str,
    ranks_per_device: int,
    folder: Path | None,
) -> None:
    """Prints a line for one rank and for several, from the disk and from the kernel's memory."""
    with (
        command.errors_in_one_line("tools.bench.loading", *FAILURES),
        TemporaryDirectory(dir=folder, prefix="loading-") as made,
    ):
        num_bytes = write_checkpoint(Path(made), model, num_layers)
        click.echo(f"{model} cut to {num_layers} layers: {num_bytes / GIGA:.2f} GB of shards")
        worlds = (1, int(world_size))
        rows = measure(Path(made), num_bytes, worlds, device, ranks_per_device)
        print_columns(TITLES, list(rows))


if __name__ == "__main__":
    main()
