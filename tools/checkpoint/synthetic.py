"""Checkpoints of any size on disk: with random data, or headers only over empty space."""

import json
from pathlib import Path

import click

from tools.checkpoint.layout import LayoutOptions, TensorSpec, checkpoint_specs
from tools.checkpoint.random_model import write_random_model
from tools.checkpoint.shards import split_into_shards, write_checkpoint, write_json

GLM_4_7_FP8_SHARDS = 93


def write_sparse_checkpoint(
    directory: Path, config: dict, num_shards: int, options: LayoutOptions | None = None
) -> list[TensorSpec]:
    """config.json, index and shards of full length whose data reads as zeros and takes no space."""
    specs = checkpoint_specs(config, options)
    directory = Path(directory)
    write_checkpoint(directory, split_into_shards(specs, num_shards), source=None)
    write_json(directory / "config.json", config)
    return specs


def describe(specs: list[TensorSpec]) -> str:
    """Tensors, parameters (scales left out) and bytes in one line."""
    parameters = sum(s.num_elements for s in specs if not s.name.endswith("weight_scale"))
    total = sum(s.num_bytes for s in specs)
    return f"{len(specs):,} tensors, {parameters:,} parameters, {total:,} bytes"


@click.command()
@click.option(
    "--config", "config_path", type=click.Path(exists=True, path_type=Path), required=True
)
@click.option("--shards", "num_shards", default=GLM_4_7_FP8_SHARDS, show_default=True)
@click.option("--sparse/--full", default=True, show_default=True, help="Headers only, or data too.")
@click.option("--prediction-layers/--no-prediction-layers", default=False, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.argument("directory", type=click.Path(path_type=Path))
def main(
    config_path: Path,
    num_shards: int,
    sparse: bool,
    prediction_layers: bool,
    seed: int,
    directory: Path,
) -> None:
    """Writes a checkpoint with the tensors that CONFIG implies into DIRECTORY."""
    config = json.loads(config_path.read_text(encoding="utf-8"))
    options = LayoutOptions(with_prediction_layers=prediction_layers)
    if sparse:
        specs = write_sparse_checkpoint(directory, config, num_shards, options)
    else:
        specs = write_random_model(directory, config, seed, num_shards, options)
    click.echo(f"{directory}: {describe(specs)}, {num_shards} shards")


if __name__ == "__main__":
    main()
