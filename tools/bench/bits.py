"""`python -m tools.bench.bits`: one rank's logits beside those of other builds, bit for bit.

One checkpoint, GLM-4.7 of a quarter of its width with random weights, is read by this checkout's
build and by those of other checkouts, each in a process of its own with its own Python and its own
libraries. Compared are all logits of prompts and of the tokens that decode after them. Ends with 1
where any differs, with 2 where they could not be compared.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from glm_engine import options
from glm_engine.bench.costs import config_path
from glm_engine.errors import BadInputError
from glm_engine.files import read_object
from tools.bench.one_line import errors_in_one_line
from tools.bench.processes import ROOT, WorkerError, ask_once
from tools.bench.share import share_of
from tools.checkpoint.shards import CheckpointWriteError
from tools.checkpoint.synthetic import cut_config, stored_config, write_repeated_checkpoint

WORKER = "tools.bench.bits_worker"
MODEL = "glm-4.7-fp8"
NARROWED = 4
GAIN = 0.5
SEED = 4704
NUM_DECODED = 8
DEFAULT_LENGTHS = (1, 24, 300, 700)
WEIGHTS = ("fp8", "bf16")
Logits = Mapping[str, np.ndarray]


def narrow_config(weights: str, num_layers: int) -> dict:
    """The `config.json` of GLM-4.7's first layers, a quarter as wide, with all of its experts;
    `weights` is one of `WEIGHTS`."""
    whole = read_object(config_path(MODEL))
    narrow = share_of(cut_config(whole, num_layers), NARROWED, "tensor_parallel")
    narrow["hidden_size"] //= NARROWED
    return stored_config(narrow, weights, GAIN)


@dataclass(frozen=True)
class Difference:
    """How many of some logits differ, and their relative L2 difference."""

    num_different: int
    num_values: int
    relative_l2: float

    def __str__(self) -> str:
        if not self.num_different:
            return f"equal ({self.num_values:,})"
        return f"{self.num_different:,} of {self.num_values:,} differ, {self.relative_l2:.2g}"


def difference(ours: np.ndarray, others: np.ndarray) -> Difference:
    """Of two float32 arrays; raises `BadInputError` for shapes that are not the same."""
    if ours.shape != others.shape:
        raise BadInputError(f"expected logits of shape {ours.shape}, got {others.shape}")
    apart = ours.astype(np.float64) - others
    relative = float(np.linalg.norm(apart) / np.linalg.norm(ours.astype(np.float64)))
    return Difference(int(np.sum(ours.view("u4") != others.view("u4"))), ours.size, relative)


def expect_own_libraries(checkout: Path, loaded: Sequence[str]) -> None:
    """Raises `BadInputError` unless all libraries, one at least, lie in the checkout's build."""
    build = checkout / "build"
    foreign = [path for path in loaded if not Path(path).is_relative_to(build)]
    if foreign or not loaded:
        found = ", ".join(foreign) or "none"
        raise BadInputError(f"{checkout}: expected the libraries in {build}, but it loaded {found}")


def logits_by(checkout: Path, folder: Path, question: dict) -> Logits:
    """What the build of a checkout answers, float32 arrays by part; raises `BadInputError` with
    what it says instead."""
    output = folder / "logits.npz"
    question = json.dumps({**question, "output": str(output)})
    try:
        told = ask_once(WORKER, question, checkout=checkout)
    except WorkerError as error:
        raise BadInputError(f"{checkout}: {error}") from error
    if "error" in told:
        raise BadInputError(f"{checkout}: {told['error']}")
    expect_own_libraries(checkout, told["libraries"])
    with np.load(output) as kept:
        return dict(kept)


def checked_checkout(folder: Path) -> Path:
    """The resolved path of a checkout; raises `BadInputError` for a folder without Python and
    build."""
    for path in (folder / "python" / "glm_engine" / "__init__.py", folder / "build" / "engine.so"):
        if not path.is_file():
            raise BadInputError(f"{folder}: expected a built checkout, found no {path}")
    return folder.resolve()


def same_as(known: Mapping[Path, Logits], theirs: Logits, part: str) -> str:
    """The first of the builds before that has the same bits; nothing where none has."""
    for checkout, before in known.items():
        if not difference(before[part], theirs[part]).num_different:
            return f", as {checkout}"
    return ""


def write_model(folder: Path, config: dict) -> None:
    """Raises `BadInputError` where the disk does not take it."""
    try:
        write_repeated_checkpoint(folder, config, SEED, 1)
    except CheckpointWriteError as error:
        raise BadInputError(str(error)) from error


def compare(weights: str, others: Sequence[Path], num_layers: int, question: dict) -> bool:
    """Print a line for each other build and each part; True where all bits are the same.

    Of a build that differs, the first of those before it that has its bits is named, too.
    """
    all_equal, known = True, {}
    with TemporaryDirectory(prefix="bits-") as made:
        model = Path(made) / weights
        model.mkdir()
        write_model(model, narrow_config(weights, num_layers))
        question = {**question, "options": {**question["options"], "model_dir": str(model)}}
        ours = logits_by(ROOT, Path(made), question)
        for other in others:
            theirs = logits_by(other, Path(made), question)
            for part, rows in ours.items():
                found = difference(rows, theirs[part])
                all_equal &= not found.num_different
                same = same_as(known, theirs, part) if found.num_different else ""
                click.echo(f"{other}  {weights}  {part:>11}  {found}{same}")
            known[other] = theirs
    return all_equal


@click.command()
@click.argument("checkouts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--device", type=click.Choice(options.DEVICES), default="auto", show_default=True)
@click.option("--layers", "num_layers", type=click.IntRange(1, 92), default=5, show_default=True)
@click.option(
    "--prompt",
    "lengths",
    type=click.IntRange(1, 8192),
    multiple=True,
    default=DEFAULT_LENGTHS,
    show_default=True,
    help="Tokens of a prompt (repeatable).",
)
def main(checkouts, device, num_layers, lengths) -> None:
    """Compares this checkout's build with those of other CHECKOUTS."""
    with errors_in_one_line("tools.bench.bits", OSError):
        others = list(dict.fromkeys(checked_checkout(folder) for folder in checkouts))
        question = {
            "lengths": sorted(set(lengths)),
            "num_decoded": NUM_DECODED,
            "seed": SEED,
            "options": {"device": device},
        }
        equal = [compare(weights, others, num_layers, question) for weights in WEIGHTS]
    sys.exit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
