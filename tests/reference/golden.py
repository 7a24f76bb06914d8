"""Stored results of the transformers oracle: written by a command, read by every golden test."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np

from tests.reference.cases import (
    CAPITALS_NAME,
    CASES,
    case_is_quantised,
    case_path,
    stored_positions,
    texts_of,
    world_sizes,
)
from tests.reference.configs import CONFIGS
from tests.reference.model import ExpertLayout
from tests.reference.models import directory_hash

GOLDEN_DIRECTORY = Path(__file__).parent.parent / "golden"
STAGE_TOKENS = 3
SPLIT_TEXT = 1
STORED_DTYPE = {name: np.float16 if name == CAPITALS_NAME else np.float32 for name in CASES}


@dataclass(frozen=True)
class Split:
    """How many ranks, and how they share the experts."""

    world_size: int = 1
    expert_layout: ExpertLayout = ExpertLayout.EXPERT_PARALLEL

    @property
    def label(self) -> str:
        return f"{self.world_size}.{self.expert_layout.value}"


ONE_RANK = Split()


def has_pytorch() -> bool:
    return find_spec("torch") is not None and find_spec("transformers") is not None


def golden_path(name: str) -> Path:
    return GOLDEN_DIRECTORY / f"{name}.npz"


@cache
def load_golden(name: str) -> dict[str, np.ndarray]:
    path = golden_path(name)
    if not path.exists():
        raise FileNotFoundError(f"{path.name} is not in tests/golden: run `scons golden`")
    with np.load(path) as stored:
        return dict(stored)


def stored_splits(name: str) -> list[Split]:
    """One rank, and for random FP8 models the greatest number of ranks in both layouts."""
    most = max(world_sizes(name))
    if most == 1 or not case_is_quantised(name) or name == CAPITALS_NAME:
        return [Split()]
    return [Split(), *(Split(most, layout) for layout in ExpertLayout)]


def stored_texts(name: str, split: Split) -> list[int]:
    texts = range(len(texts_of(name)))
    return list(texts) if split.world_size == 1 else [SPLIT_TEXT]


def stage_layer(name: str) -> int:
    return CONFIGS[name]["num_hidden_layers"] - 1


def stage_tokens(name: str) -> list[int]:
    return texts_of(name)[SPLIT_TEXT][:STAGE_TOKENS]


def oracle_logits(
    directory: Path, texts: Sequence[Sequence[int]], split: Split = ONE_RANK
) -> list[np.ndarray]:
    """Logits of transformers at every position of each text."""
    from tests.reference.transformers_oracle import TransformersOracle

    oracle = TransformersOracle(directory, split.world_size, split.expert_layout)
    return oracle.batch_logits(texts)


def oracle_stages(directory: Path, name: str) -> dict[str, np.ndarray]:
    """Stages of the last layer and of the end of the model, by prefixed names."""
    from tests.reference.transformers_oracle import TransformersOracle
    from tests.reference.transformers_stages import capture_final, capture_layer

    oracle = TransformersOracle(directory)
    layer = capture_layer(oracle, stage_layer(name), stage_tokens(name))
    final = capture_final(oracle, stage_tokens(name))
    stages = {f"layer.{key}": array for key, array in layer.items()}
    return stages | {f"final.{key}": array for key, array in final.items()}


def compute_golden(name: str, directory: Path) -> dict[str, np.ndarray]:
    """Everything that is stored of one configuration, computed anew from its checkpoint."""
    texts = texts_of(name)
    arrays = {"hash": np.array(directory_hash(directory))}
    arrays |= {f"text.{number}": np.array(text) for number, text in enumerate(texts)}
    for split in stored_splits(name):
        numbers = stored_texts(name, split)
        logits = oracle_logits(directory, [texts[number] for number in numbers], split)
        for number, array in zip(numbers, logits, strict=True):
            chosen = array[stored_positions(name, len(array))]
            arrays[f"logits.{split.label}.{number}"] = chosen.astype(STORED_DTYPE[name])
    if name == CAPITALS_NAME:
        return arrays
    return arrays | {f"stage.{key}": array for key, array in oracle_stages(directory, name).items()}


def stored_logits(name: str, split: Split = ONE_RANK) -> dict[int, np.ndarray]:
    """Text number → logits at stored_positions of that text."""
    golden = load_golden(name)
    prefix = f"logits.{split.label}."
    found = {int(key[len(prefix) :]): golden[key] for key in golden if key.startswith(prefix)}
    if not found:
        raise KeyError(f"{name}: no stored logits for {split.label}")
    return found


def stored_stages(name: str, part: str) -> dict[str, np.ndarray]:
    """part: "layer" for the stages of stage_layer, "final" for the end of the model."""
    golden, prefix = load_golden(name), f"stage.{part}."
    return {key[len(prefix) :]: golden[key] for key in golden if key.startswith(prefix)}


def write_golden(name: str, directory: Path) -> int:
    """Stores one configuration; returns the bytes written."""
    path = golden_path(name)
    path.parent.mkdir(exist_ok=True)
    np.savez_compressed(path, **compute_golden(name, case_path(name, directory)))
    return path.stat().st_size


@click.group()
def main() -> None:
    """Stored results of the transformers oracle."""


@main.command()
@click.argument("names", nargs=-1, type=click.Choice(CASES))
def write(names: Sequence[str]) -> None:
    """Computes and stores NAMES, all by default."""
    if not has_pytorch():
        raise click.ClickException("PyTorch and transformers are needed to write golden files")
    with TemporaryDirectory() as directory:
        for name in names or CASES:
            size = write_golden(name, Path(directory))
            click.echo(f"{golden_path(name).name}: {size:,} bytes")


if __name__ == "__main__":
    main()
