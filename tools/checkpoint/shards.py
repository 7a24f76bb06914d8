"""Writes safetensors shards and their index, streaming, or as headers over empty space."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np

from glm_engine.core.float8 import encode_bf16
from tools.checkpoint.layout import (
    DTYPE_BYTES,
    USUAL,
    Config,
    LayoutOptions,
    TensorSpec,
    checkpoint_specs,
)

INDEX_NAME = "model.safetensors.index.json"
HEADER_ALIGNMENT = 8
STORED_TYPES = {"F8_E4M3": np.uint8, "BF16": np.uint16, "F32": np.float32}

TensorSource = Callable[[TensorSpec], np.ndarray]


class CheckpointWriteError(click.ClickException):
    """A folder, a disk or a file that takes no checkpoint: one line, and exit code 1."""


def stored_array(spec: TensorSpec, values: np.ndarray) -> np.ndarray:
    """The array as it lies on disk: float32 becomes BF16 codes where the spec asks for it."""
    if spec.dtype == "BF16" and values.dtype == np.float32:
        values = encode_bf16(values)
    if values.shape != spec.shape or values.dtype != STORED_TYPES[spec.dtype]:
        raise ValueError(
            f"{spec.name}: expected {spec.dtype} {list(spec.shape)}, "
            f"got {values.dtype} {list(values.shape)}"
        )
    return np.ascontiguousarray(values)


def header_bytes(specs: list[TensorSpec]) -> bytes:
    """The length field and the JSON header of a shard that holds the specs in this order."""
    header: dict[str, dict[str, object]] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for spec in specs:
        end = offset + spec.num_bytes
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def split_into_shards(specs: list[TensorSpec], num_shards: int) -> list[list[TensorSpec]]:
    """Consecutive groups of about equal bytes, each of at least one tensor."""
    if not 1 <= num_shards <= len(specs):
        raise ValueError(f"cannot put {len(specs)} tensors into {num_shards} shards")
    shards: list[list[TensorSpec]] = [[] for _ in range(num_shards)]
    remaining_bytes = sum(spec.num_bytes for spec in specs)
    position = 0
    for left, shard in zip(range(num_shards, 0, -1), shards, strict=True):
        target, filled = remaining_bytes / left, 0
        last = len(specs) - (left - 1)
        while position < last and (not shard or left == 1 or filled < target):
            shard.append(specs[position])
            filled += specs[position].num_bytes
            position += 1
        remaining_bytes -= filled
    return shards


def shard_name(number: int, num_shards: int) -> str:
    """The usual name of the shard with this number, counted from 1."""
    if num_shards == 1:
        return "model.safetensors"
    return f"model-{number:05d}-of-{num_shards:05d}.safetensors"


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name when it is complete, and is removed when it cannot be."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise CheckpointWriteError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        partial.unlink(missing_ok=True)


def write_shard(path: Path, specs: list[TensorSpec], source: TensorSource | None) -> None:
    """A shard, one tensor in memory at a time; without a source it has its full length, but takes
    the header's space only.

    The widest dtype comes first, so that every tensor is aligned to its own dtype.
    """
    ordered = sorted(specs, key=lambda spec: (-DTYPE_BYTES[spec.dtype], spec.name))
    header = header_bytes(ordered)
    with whole_file(path) as file:
        file.write(header)
        if source is None:
            file.truncate(len(header) + sum(spec.num_bytes for spec in ordered))
            return
        for spec in ordered:
            file.write(stored_array(spec, source(spec)).reshape(-1).view(np.uint8).data)


def require_space(folder: Path, num_bytes: int) -> None:
    """Refuses what the file system of a folder has no room for, before anything is written."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise CheckpointWriteError(
            f"{folder}: the shards take {num_bytes:,} bytes, {free:,} are free, "
            f"{num_bytes - free:,} are missing"
        )


def write_index(folder: Path, shards: list[list[TensorSpec]]) -> None:
    """model.safetensors.index.json for shards that carry their usual names."""
    names = [shard_name(number + 1, len(shards)) for number in range(len(shards))]
    pairs = [(s.name, name) for name, shard in zip(names, shards, strict=True) for s in shard]
    total = sum(spec.num_bytes for shard in shards for spec in shard)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(pairs))}
    write_json(folder / INDEX_NAME, index)


def write_checkpoint(
    folder: Path, shards: list[list[TensorSpec]], source: TensorSource | None
) -> None:
    """Index and shards; without a source the shards are sparse."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointWriteError(f"{folder} cannot be created: {error.strerror}") from error
    if source is not None:
        require_space(folder, sum(spec.num_bytes for shard in shards for spec in shard))
    for number, specs in enumerate(shards, start=1):
        write_shard(folder / shard_name(number, len(shards)), specs, source)
    write_index(folder, shards)


def write_json(path: Path, value: object) -> None:
    """A JSON document as the model's own files are laid out."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_model(
    folder: Path,
    config: Config,
    num_shards: int,
    source: TensorSource | None,
    options: LayoutOptions = USUAL,
) -> list[TensorSpec]:
    """config.json, index and shards with the tensors that a config implies."""
    specs = checkpoint_specs(config, options)
    write_checkpoint(folder, split_into_shards(specs, num_shards), source)
    write_json(folder / "config.json", config)
    return specs
