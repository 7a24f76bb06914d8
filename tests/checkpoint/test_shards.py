import errno
import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tools.checkpoint.layout import TensorSpec, checkpoint_specs
from tools.checkpoint.random_model import small_config, write_random_model
from tools.checkpoint.shards import (
    INDEX_NAME,
    CheckpointWriteError,
    header_bytes,
    shard_name,
    split_into_shards,
    stored_array,
    write_checkpoint,
    write_shard,
)

ROOT = Path(__file__).resolve().parents[2]


def bytes_spec(name: str, size: int) -> TensorSpec:
    return TensorSpec(name, "F8_E4M3", (size,))


def raw_header(path) -> tuple[dict, int]:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), len(data) - 8 - length


@pytest.mark.parametrize("num_shards", [1, 2, 5])
def test_index_names_every_tensor_in_the_shard_that_holds_it(tmp_path, num_shards):
    specs = write_random_model(tmp_path, small_config(), seed=1, num_shards=num_shards)
    index = json.loads((tmp_path / INDEX_NAME).read_text())
    assert sorted(index["weight_map"]) == sorted(s.name for s in specs)
    assert index["metadata"]["total_size"] == sum(s.num_bytes for s in specs)
    assert set(index["weight_map"].values()) == {
        shard_name(n, num_shards) for n in range(1, num_shards + 1)
    }
    for shard in set(index["weight_map"].values()):
        with safe_open(tmp_path / shard, framework="numpy") as file:
            held = set(file.keys())
        assert held == {name for name, home in index["weight_map"].items() if home == shard}


def test_the_safetensors_library_reads_shapes_and_dtypes(tmp_path):
    specs = write_random_model(tmp_path, small_config(), seed=1, num_shards=2)
    found = {}
    for shard in sorted(tmp_path.glob("*.safetensors")):
        with safe_open(shard, framework="numpy") as file:
            for name in sorted(file.keys()):
                part = file.get_slice(name)
                found[name] = (part.get_dtype(), tuple(part.get_shape()))
    assert found == {s.name: (s.dtype, s.shape) for s in specs}


def test_data_is_contiguous_and_each_tensor_is_aligned(tmp_path):
    write_random_model(tmp_path, small_config(hidden_size=75), seed=1)
    header, data_size = raw_header(tmp_path / "model.safetensors")
    assert header.pop("__metadata__") == {"format": "pt"}
    widths = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
    position = 0
    for entry in header.values():
        begin, end = entry["data_offsets"]
        width = widths[entry["dtype"]]
        assert begin == position
        assert begin % width == 0
        assert end - begin == width * int(np.prod(entry["shape"]))
        position = end
    assert position == data_size


def test_header_is_padded_to_eight_bytes():
    for size in range(1, 9):
        assert len(header_bytes([bytes_spec("t" * size, 1)])) % 8 == 0


def test_values_come_back_bit_for_bit(tmp_path):
    values = np.arange(-6, 6, dtype=np.float32).reshape(3, 4) / 7
    spec = TensorSpec("weight", "F32", (3, 4))
    write_shard(tmp_path / "one.safetensors", [spec], lambda _: values)
    with safe_open(tmp_path / "one.safetensors", framework="numpy") as file:
        assert np.array_equal(file.get_tensor("weight"), values)


@pytest.mark.parametrize("num_shards", [1, 2, 3, 7])
def test_shards_are_consecutive_and_none_is_empty(num_shards):
    specs = checkpoint_specs(small_config())
    shards = split_into_shards(specs, num_shards)
    assert [s for shard in shards for s in shard] == specs
    assert len(shards) == num_shards
    assert all(shards)


def test_as_many_shards_as_tensors():
    specs = [bytes_spec("a", 0), bytes_spec("b", 1000), bytes_spec("c", 1)]
    assert [len(shard) for shard in split_into_shards(specs, 3)] == [1, 1, 1]


@pytest.mark.parametrize("num_shards", [0, 4])
def test_impossible_numbers_of_shards_are_refused(num_shards):
    with pytest.raises(ValueError, match="cannot put 3 tensors"):
        split_into_shards([bytes_spec(name, 1) for name in "abc"], num_shards)


def test_a_wrong_shape_is_refused_by_name():
    spec = TensorSpec("model.norm.weight", "F32", (3,))
    with pytest.raises(ValueError, match=r"model\.norm\.weight: expected F32 \[3\]"):
        stored_array(spec, np.zeros(4, dtype=np.float32))


def test_a_shard_that_cannot_be_completed_leaves_no_file(tmp_path):
    specs = [bytes_spec("a", 4), bytes_spec("b", 4)]

    def full_disk(spec):
        if spec.name == "b":
            raise OSError(errno.ENOSPC, "No space left on device")
        return np.zeros(4, np.uint8)

    with pytest.raises(CheckpointWriteError, match=r"one\.safetensors cannot be written: No space"):
        write_shard(tmp_path / "one.safetensors", specs, full_disk)
    assert list(tmp_path.iterdir()) == []


def test_a_truly_full_disk_is_one_line_and_leaves_no_file(tmp_path):
    folder, config = tmp_path / "model", tmp_path / "config.json"
    config.write_text(json.dumps(small_config(vocab_size=4096)))
    command = [sys.executable, "-m", "tools.checkpoint.random_model"]
    limited = f"ulimit -f 200; exec {shlex.join([*command, '--config', str(config), str(folder)])}"
    done = subprocess.run(["bash", "-c", limited], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be written: File too large" in done.stderr
    assert [path.name for path in folder.iterdir() if "safetensors" in path.name] == []


def test_a_checkpoint_larger_than_the_disk_is_refused_before_it_is_written(tmp_path):
    huge = [TensorSpec("weight", "F8_E4M3", (1 << 60,))]
    with pytest.raises(CheckpointWriteError, match=r"take 1,152,.* are missing"):
        write_checkpoint(tmp_path / "model", [huge], lambda _: np.zeros(0, np.uint8))
    assert list((tmp_path / "model").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointWriteError, match="cannot be created: Not a directory"):
        write_random_model(tmp_path / "file" / "model", small_config(), seed=0)
