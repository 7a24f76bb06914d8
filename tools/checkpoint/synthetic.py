"""Checkpoints of any size on disk: random data, data that repeats, or headers over empty space."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from glm_engine.core.float8 import encode_bf16, encode_e4m3
from tools.checkpoint.layout import USUAL, Config, LayoutOptions, TensorSpec
from tools.checkpoint.random_model import SCALE_SUFFIX, RandomTensors
from tools.checkpoint.shards import TensorSource, write_model

GLM_4_7_FP8_SHARDS = 93
BLOCK_ELEMENTS = 1_048_573
LARGEST_CODE = 448.0


class RepeatedTensors:
    """Random values that come again after `BLOCK_ELEMENTS`, as fast as the disk takes them.

    That number is a prime, and each tensor begins at a place of its own, so that no two rows and
    no two experts are the same. Codes are uniform over E4M3's range, each row's scale makes their
    spread the config's `initializer_range`; tensors of a block or less are those of a random model.
    """

    def __init__(self, config: Config, seed: int, options: LayoutOptions = USUAL) -> None:
        self._generator = np.random.default_rng(seed)
        uniform = self._generator.uniform(-LARGEST_CODE, LARGEST_CODE, BLOCK_ELEMENTS)
        self._small = RandomTensors(config, seed, options)
        self._codes = encode_e4m3(uniform.astype(np.float32))
        self._normal = self._generator.standard_normal(BLOCK_ELEMENTS, dtype=np.float32)

    def __call__(self, spec: TensorSpec) -> np.ndarray:
        centre, spread = self._small.distribution(spec.name)
        if spec.name.endswith(SCALE_SUFFIX):
            return np.full(spec.shape, np.float32(spread * np.sqrt(3) / LARGEST_CODE))
        if spec.dtype == "F8_E4M3":
            return self._again(self._codes, spec)
        if spec.num_elements <= BLOCK_ELEMENTS:
            return self._small(spec)
        values = np.float32(centre) + np.float32(spread) * self._normal
        return self._again(encode_bf16(values) if spec.dtype == "BF16" else values, spec)

    def _again(self, block: np.ndarray, spec: TensorSpec) -> np.ndarray:
        first = self._generator.integers(BLOCK_ELEMENTS)
        return np.resize(np.roll(block, first), spec.shape)


def cut_config(config: Config, num_layers: int) -> dict[str, Any]:
    """The config of a model's first layers, without those of prediction."""
    dense = min(config["first_k_dense_replace"], num_layers)
    cut = {"num_hidden_layers": num_layers, "num_nextn_predict_layers": 0}
    return {**config, **cut, "first_k_dense_replace": dense}


def stored_config(config: Config, stored: str, gain: float) -> dict[str, Any]:
    """The config with its weights in "fp8", as they are, or in "bf16", of a spread that gives a
    product `gain` times the size of its input of `hidden_size` values."""
    drawn = {**config, "initializer_range": gain / config["hidden_size"] ** 0.5}
    if stored == "bf16":
        del drawn["quantization_config"]
    return drawn


SOURCES: Mapping[str, Callable[[Config, int, LayoutOptions], TensorSource]] = {
    "repeated": RepeatedTensors,
    "random": RandomTensors,
}


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
@click.option(
    "--data",
    type=click.Choice(["none", *SOURCES]),
    default="none",
    show_default=True,
    help="none: headers without data; repeated: a repeated random block, which loads.",
)
@click.option("--prediction-layers/--no-prediction-layers", default=False, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.argument("directory", type=click.Path(path_type=Path))
def main(
    config_path: Path,
    num_shards: int,
    data: str,
    prediction_layers: bool,
    seed: int,
    directory: Path,
) -> None:
    """Writes a checkpoint with the tensors that CONFIG implies into DIRECTORY."""
    config = json.loads(config_path.read_text(encoding="utf-8"))
    options = LayoutOptions(with_prediction_layers=prediction_layers)
    make_source = SOURCES.get(data)
    source = make_source and make_source(config, seed, options)
    specs = write_model(directory, config, num_shards, source, options)
    click.echo(f"{directory}: {describe(specs)}, {num_shards} shards")


if __name__ == "__main__":
    main()
