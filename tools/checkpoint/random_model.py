"""Random glm4_moe checkpoints in GLM-4.7-FP8's own format, without PyTorch."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from tools.checkpoint.layout import (
    USUAL,
    Config,
    LayoutOptions,
    TensorSpec,
    checkpoint_specs,
)
from tools.checkpoint.quantise import quantise_channels, quantization_config
from tools.checkpoint.shards import write_model

SCALE_SUFFIX = ".weight_scale"
SMALL_CONFIG: Config = {
    "architectures": ["Glm4MoeForCausalLM"],
    "attention_bias": True,
    "eos_token_id": [0, 1],
    "first_k_dense_replace": 1,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 512,
    "model_type": "glm4_moe",
    "moe_intermediate_size": 32,
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "num_nextn_predict_layers": 0,
    "pad_token_id": 0,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000,
    "routed_scaling_factor": 1.5,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "torch_dtype": "bfloat16",
    "use_qk_norm": True,
    "vocab_size": 128,
}
SMALL_IGNORE = ["lm_head", r"re:.*\.mlp\.gate$"]


def small_config(fp8: bool = True, **changes: object) -> dict[str, Any]:
    """SMALL_CONFIG with changes; with fp8 also its quantization_config."""
    unknown = sorted(set(changes) - set(SMALL_CONFIG))
    if unknown:
        raise ValueError(f"a glm4_moe config has no such keys: {unknown}")
    config = {**SMALL_CONFIG, **changes}
    if fp8:
        config["quantization_config"] = quantization_config([*SMALL_IGNORE])
    return config


class RandomTensors:
    """Values of any tensor by name: each drawn from its own generator, keyed by seed and name."""

    def __init__(self, config: Config, seed: int, options: LayoutOptions = USUAL) -> None:
        self._seed, self._scale_dtype = seed, options.scale_dtype
        self._weight_spread = config.get("initializer_range", 0.02)
        specs = checkpoint_specs(config, options)
        self._weight_shapes = {s.name: s.shape for s in specs if s.dtype == "F8_E4M3"}

    def __call__(self, spec: TensorSpec) -> np.ndarray:
        if spec.name.endswith(SCALE_SUFFIX):
            return self._quantised(spec)[1]
        if spec.dtype == "F8_E4M3":
            return self._quantised(spec)[0]
        return self._values(spec.name, spec.shape)

    def _quantised(self, spec: TensorSpec) -> tuple[np.ndarray, np.ndarray]:
        name = spec.name.removesuffix("_scale")
        shape = self._weight_shapes[name]
        return quantise_channels(self._values(name, shape), self._scale_dtype)

    def _values(self, name: str, shape: Sequence[int]) -> np.ndarray:
        digest = hashlib.sha256(f"{self._seed}:{name}".encode()).digest()
        generator = np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "little")))
        centre, spread = self.distribution(name)
        values = generator.standard_normal(shape, dtype=np.float32)
        return np.float32(centre) + np.float32(spread) * values

    def distribution(self, name: str) -> tuple[float, float]:
        """Mean and spread of a tensor's values."""
        if name.endswith("norm.weight"):
            return 1.0, 0.1
        if name.endswith("bias"):
            return 0.0, 0.1
        if name.endswith("embed_tokens.weight"):
            return 0.0, 1.0
        return 0.0, self._weight_spread


def write_random_model(
    directory: Path,
    config: Config,
    seed: int,
    num_shards: int = 1,
    options: LayoutOptions = USUAL,
) -> list[TensorSpec]:
    """config.json, shards and index of a random model; the same arguments give the same bytes."""
    source = RandomTensors(config, seed, options)
    return write_model(directory, config, num_shards, source, options)


@click.command()
@click.option("--config", "config_path", type=click.Path(exists=True, path_type=Path))
@click.option("--fp8/--bf16", default=True, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--shards", "num_shards", default=2, show_default=True)
@click.option("--scale-dtype", type=click.Choice(["BF16", "F32"]), default="F32")
@click.argument("directory", type=click.Path(path_type=Path))
def main(
    config_path: Path | None,
    fp8: bool,
    seed: int,
    num_shards: int,
    scale_dtype: str,
    directory: Path,
) -> None:
    """Writes a random checkpoint of CONFIG (or of a small one) into DIRECTORY."""
    config = small_config(fp8)
    if config_path is not None:
        config = json.loads(config_path.read_text(encoding="utf-8"))
        if not fp8:
            config.pop("quantization_config", None)
        elif "quantization_config" not in config:
            config["quantization_config"] = quantization_config(SMALL_IGNORE)
    options = LayoutOptions(scale_dtype=scale_dtype)
    specs = write_random_model(directory, config, seed, num_shards, options)
    total = sum(spec.num_bytes for spec in specs)
    click.echo(f"{directory}: {len(specs)} tensors, {total:,} bytes, {num_shards} shards")


if __name__ == "__main__":
    main()
