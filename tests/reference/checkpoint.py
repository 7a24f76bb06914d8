"""Checkpoints on disk, read through the safetensors library into numpy."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import deserialize

from tests.reference import fp8
from tests.reference.linear import Linear

INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as stored: dtype is safetensors' name of it, data the raw elements."""

    dtype: str
    data: np.ndarray

    def values(self) -> np.ndarray:
        """float64 for F8_E4M3, float32 for BF16, else as stored."""
        if self.dtype == "F8_E4M3":
            return fp8.decode(self.data)
        if self.dtype == "BF16":
            return (self.data.astype(np.uint32) << 16).view(np.float32)
        return self.data


RAW_DTYPES = {
    "F8_E4M3": np.uint8,
    "BF16": np.uint16,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}


def stored_tensor(description: dict) -> StoredTensor:
    dtype = description["dtype"]
    if dtype not in RAW_DTYPES:
        raise ValueError(f"tensor dtype {dtype}, expected one of {sorted(RAW_DTYPES)}")
    data = np.frombuffer(description["data"], dtype=RAW_DTYPES[dtype])
    return StoredTensor(dtype, data.reshape(description["shape"]))


def shard_paths(directory: Path) -> list[Path]:
    index = directory / INDEX_NAME
    if index.exists():
        weight_map = json.loads(index.read_text())["weight_map"]
        return [directory / name for name in sorted(set(weight_map.values()))]
    return sorted(directory.glob("*.safetensors"))


def is_prediction_tensor(name: str, config: dict) -> bool:
    """Whether a tensor belongs to a layer past num_hidden_layers (multi-token prediction)."""
    parts = name.split(".")
    return parts[:2] == ["model", "layers"] and int(parts[2]) >= config["num_hidden_layers"]


@dataclass(frozen=True)
class Checkpoint:
    """config.json as a dictionary and every stored tensor by name."""

    config: dict
    tensors: dict[str, StoredTensor]

    def vector(self, name: str, dtype: type) -> np.ndarray:
        if name not in self.tensors:
            raise KeyError(f"checkpoint has no tensor {name}")
        return self.tensors[name].values().astype(dtype)

    def linear(self, prefix: str, dtype: type) -> Linear:
        """prefix.weight with its weight_scale and bias where the checkpoint has them."""
        weight = self.vector(f"{prefix}.weight", np.float64)
        scale = self.tensors.get(f"{prefix}.weight_scale")
        if scale is not None:
            weight = weight * scale.values().astype(np.float64).reshape(-1, 1)
        bias = self.vector(f"{prefix}.bias", dtype) if f"{prefix}.bias" in self.tensors else None
        return Linear(weight.astype(dtype), bias, scale is not None)

    @property
    def is_quantised(self) -> bool:
        return any(name.endswith(".weight_scale") for name in self.tensors)


def read_checkpoint(directory: Path | str) -> Checkpoint:
    directory = Path(directory)
    config = json.loads((directory / "config.json").read_text())
    tensors = {}
    for path in shard_paths(directory):
        for name, description in deserialize(path.read_bytes()):
            tensors[name] = stored_tensor(description)
    if not tensors:
        raise FileNotFoundError(f"no safetensors in {directory}")
    return Checkpoint(config, tensors)
