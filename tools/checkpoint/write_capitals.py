"""python -m tools.checkpoint.write_capitals: trained float32 weights to checkpoints/capitals."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
from safetensors.numpy import load_file

from glm_engine.core.float8 import round_to_bf16
from tools.checkpoint.documents import CAPITAL_PROMPT, fill
from tools.checkpoint.facts import read_countries
from tools.checkpoint.layout import Config, TensorSpec, checkpoint_specs
from tools.checkpoint.quantise import quantise_channels, quantization_config
from tools.checkpoint.random_model import RandomTensors
from tools.checkpoint.shards import (
    TensorSource,
    split_into_shards,
    write_checkpoint,
    write_json,
)

NUM_SHARDS = 3
SCALE_DTYPE = "F32"
IGNORE = ["lm_head", r"re:.*\.mlp\.gate$", "model.layers.4.eh_proj"]
PREDICTION_LAYER_SEED = 4
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
EXPERT_TENSOR = re.compile(r"(.*\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


class TrainedTensors:
    """Tensors of the checkpoint by name, quantised from trained float32 weights."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self._weights = weights

    def __call__(self, spec: TensorSpec) -> np.ndarray:
        if spec.name.endswith("weight_scale"):
            return self._quantised(spec.name.removesuffix("_scale"))[1]
        if spec.dtype == "F8_E4M3":
            return self._quantised(spec.name)[0]
        return self._weight(spec.name)

    def _quantised(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return quantise_channels(round_to_bf16(self._weight(name)), SCALE_DTYPE)

    def _weight(self, name: str) -> np.ndarray:
        expert = EXPERT_TENSOR.fullmatch(name)
        if expert is None:
            return self._weights[name]
        module, number, kind = expert.groups()
        fused = "down_proj" if kind == "down" else "gate_up_proj"
        weight: np.ndarray = self._weights[f"{module}.{fused}"][int(number)]
        if kind == "down":
            return weight
        gate, up = np.split(weight, 2)
        return gate if kind == "gate" else up


def write_tensors(
    folder: Path, config: Config, own: TensorSource, prediction: TensorSource
) -> list[TensorSpec]:
    """The shards and their index, from the model's own layers and its prediction layer."""

    def source(spec: TensorSpec) -> np.ndarray:
        layer = re.match(r"model\.layers\.(\d+)\.", spec.name)
        is_own = layer is None or int(layer[1]) < config["num_hidden_layers"]
        return own(spec) if is_own else prediction(spec)

    specs = checkpoint_specs(config)
    write_checkpoint(folder, split_into_shards(specs, NUM_SHARDS), source)
    return specs


def generation_config(config: Config) -> dict[str, Any]:
    """generation_config.json: greedy, with the model's own end tokens."""
    return {
        "do_sample": False,
        "eos_token_id": config["eos_token_id"],
        "pad_token_id": config["pad_token_id"],
    }


def evaluation_list() -> list[dict[str, str]]:
    """The questions of `glm evaluate`: country, capital and prompt."""
    return [
        {"country": c.name, "capital": c.capital, "prompt": fill(CAPITAL_PROMPT, c)}
        for c in read_countries()
    ]


@click.command()
@click.option("--trained", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--output", type=click.Path(path_type=Path), required=True)
def main(trained: Path, output: Path) -> None:
    """Quantises the weights in TRAINED and writes the whole checkpoint into OUTPUT."""
    config = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = quantization_config(IGNORE)
    source = TrainedTensors(load_file(trained / "float32.safetensors"))
    specs = write_tensors(output, config, source, RandomTensors(config, PREDICTION_LAYER_SEED))
    write_json(output / "config.json", config)
    write_json(output / "generation_config.json", generation_config(config))
    write_json(output / "countries.json", evaluation_list())
    shutil.copyfile(CHAT_TEMPLATE, output / CHAT_TEMPLATE.name)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (output / name).write_bytes((trained / name).read_bytes())
    total = sum(spec.num_bytes for spec in specs)
    click.echo(f"{output}: {len(specs)} tensors, {total:,} bytes, {NUM_SHARDS} shards")


if __name__ == "__main__":
    main()
