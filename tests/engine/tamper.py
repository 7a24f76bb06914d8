"""Damages small checkpoints on disk, one defined way at a time."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.checkpoint.random_model import small_config, write_random_model

LENGTH_BYTES = 8
INDEX_NAME = "model.safetensors.index.json"
FIRST_SHARD = "model-00001-of-00002.safetensors"
SECOND_SHARD = "model-00002-of-00002.safetensors"


def small_checkpoint(directory: Path, fp8: bool = True, num_shards: int = 2, **changes) -> Path:
    """A sound random checkpoint of three layers."""
    write_random_model(directory, small_config(fp8, **changes), seed=1, num_shards=num_shards)
    return directory


def rewrite_json(path: Path, change: Callable[[dict], object]) -> None:
    """Applies `change` to a JSON document; what it returns, if anything, takes its place."""
    document = json.loads(path.read_text(encoding="utf-8"))
    result = change(document)
    path.write_text(json.dumps(document if result is None else result), encoding="utf-8")


def change_config(directory: Path, **changes) -> None:
    """Sets keys of config.json; None removes a key."""

    def change(config: dict) -> dict:
        merged = {**config, **changes}
        return {key: value for key, value in merged.items() if value is not None}

    rewrite_json(directory / "config.json", change)


def change_quantisation(directory: Path, change: Callable[[dict], object]) -> None:
    rewrite_json(
        directory / "config.json", lambda config: change(config["quantization_config"]) and None
    )


def change_index(directory: Path, change: Callable[[dict], object]) -> None:
    rewrite_json(directory / INDEX_NAME, lambda index: change(index["weight_map"]) and None)


def split_shard(path: Path) -> tuple[dict, bytes]:
    """Header and data of a shard."""
    whole = path.read_bytes()
    size = int.from_bytes(whole[:LENGTH_BYTES], "little")
    return json.loads(whole[LENGTH_BYTES : LENGTH_BYTES + size]), whole[LENGTH_BYTES + size :]


def join_shard(path: Path, header: object, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(LENGTH_BYTES, "little") + text + data)


def change_header(path: Path, change: Callable[[dict], object]) -> None:
    """Applies `change` to a shard's header and keeps the data."""
    header, data = split_shard(path)
    result = change(header)
    join_shard(path, header if result is None else result, data)


def shard_of(directory: Path, name: str) -> Path:
    index = json.loads((directory / INDEX_NAME).read_text(encoding="utf-8"))
    return directory / index["weight_map"][name]


def set_bytes(directory: Path, name: str, offset: int, value: bytes) -> None:
    """Overwrites bytes of one tensor's data."""
    path = shard_of(directory, name)
    header, data = split_shard(path)
    begin = header[name]["data_offsets"][0] + offset
    join_shard(path, header, data[:begin] + value + data[begin + len(value) :])


def without(header: dict, name: str) -> dict:
    return {key: value for key, value in header.items() if key != name}


def drop_tensor(directory: Path, name: str) -> None:
    """Removes a tensor from index and shard, its bytes too."""
    path = shard_of(directory, name)
    header, data = split_shard(path)
    begin, end = header[name]["data_offsets"]
    shifted = {key: dict(value) for key, value in without(header, name).items()}
    for _, entry in tensors(shifted):
        if entry["data_offsets"][0] >= end:
            entry["data_offsets"] = [bound - (end - begin) for bound in entry["data_offsets"]]
    join_shard(path, shifted, data[:begin] + data[end:])
    change_index(directory, lambda weight_map: weight_map.pop(name))


def add_tensor(directory: Path, name: str, dtype: str, shape: list[int], data: bytes) -> None:
    """Appends a tensor to the second shard and to the index."""
    path = directory / SECOND_SHARD
    header, old = split_shard(path)
    begin = -(-len(old) // 8) * 8
    assert begin == len(old), "the padding would belong to no tensor"
    header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(data)]}
    join_shard(path, header, old + data)
    change_index(directory, lambda weight_map: weight_map.update({name: SECOND_SHARD}))


def tensors(header: dict) -> Iterator[tuple[str, dict]]:
    """Names and entries of a header, in the order of their data."""
    entries = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    return iter(sorted(entries, key=lambda pair: pair[1]["data_offsets"]))
