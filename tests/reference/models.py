"""The random checkpoints of configs.py on disk, made from their seeds and checked by hash."""

import hashlib
from functools import cache
from pathlib import Path

from tests.reference.configs import CONFIGS, FORMATS, SEEDS
from tools.checkpoint.layout import LayoutOptions
from tools.checkpoint.random_model import write_random_model


def write_model(name: str, directory: Path) -> Path:
    """config.json, shards and index of the named configuration under directory / name."""
    path = Path(directory) / name
    scale_dtype, num_shards = FORMATS[name]
    options = LayoutOptions(scale_dtype=scale_dtype)
    write_random_model(path, CONFIGS[name], SEEDS[name], num_shards, options)
    return path


def write_prediction_model(name: str, directory: Path, has_own_vocabulary: bool = False) -> Path:
    """The same with a prediction layer, which may have an embedding and a head of its own."""
    path = Path(directory) / f"{name}_{'own' if has_own_vocabulary else 'shared'}_vocabulary"
    scale_dtype, num_shards = FORMATS[name]
    config = {**CONFIGS[name], "num_nextn_predict_layers": 1}
    options = LayoutOptions(scale_dtype, prediction_has_own_vocabulary=has_own_vocabulary)
    write_random_model(path, config, SEEDS[name], num_shards, options)
    return path


@cache
def ensure_model(name: str, directory: Path) -> Path:
    return write_model(name, directory)


def directory_hash(path: Path) -> str:
    """SHA-256 over config.json and the shards of a checkpoint, names and bytes."""
    digest = hashlib.sha256()
    for file in sorted([path / "config.json", *path.glob("*.safetensors")]):
        digest.update(file.name.encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
