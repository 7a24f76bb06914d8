"""Checkpoints made to hurt: colliding names, escapes, files that shrink, indexes that are gone."""

import json
import mmap
import multiprocessing
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, inspect_checkpoint, plan
from glm_engine.core.errors import EngineError, Status
from tests.engine import loader, tamper
from tests.engine.tamper import FIRST_SHARD, INDEX_NAME, SECOND_SHARD

NUM_NAMES = 40_000
FIRST_MULTIPLIER = 0x9E3779B97F4A7C15
SECOND_MULTIPLIER = 0xC2B2AE3D27D4EB4F
ALL_BITS = 2**64 - 1
ESCAPES = "\x1b[31mred\x1b[0m \x07\x9b2J\u202e\r\n"
SHOWN_ESCAPES = "\\x1b[31mred\\x1b[0m \\x07\\x9b2J\\u202e\\x0d\\x0a"
MORE_THAN_INT32 = 2**31 + 16


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return tamper.small_checkpoint(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def checkpoint(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def failure(directory: Path) -> EngineError:
    options = EngineOptions(directory, device="cpu", max_seq=64, max_batch=2, num_threads=1)
    with pytest.raises(EngineError) as caught:
        Engine(options).close()
    return caught.value


def problems(directory: Path) -> list[str]:
    found = inspect_checkpoint(directory)["problems"]
    return [": ".join((one["file"], one["tensor"], one["message"])) for one in found]


def colliding_names(count: int) -> list[str]:
    """Names of 16 ASCII characters that have one value under an unkeyed hash of two words."""
    generator, names = np.random.default_rng(5), []
    start = np.uint64(16 * FIRST_MULTIPLIER & ALL_BITS)
    while len(names) < count:
        first = generator.integers(0, 2**64, 1 << 20, dtype=np.uint64) & np.uint64(
            0x7F7F7F7F7F7F7F7F
        )
        mixed = (start ^ first) * np.uint64(SECOND_MULTIPLIER)
        second = mixed ^ (mixed >> np.uint64(29))
        is_ascii = (second & np.uint64(0x8080808080808080)) == 0
        pairs = np.stack((first[is_ascii], second[is_ascii]), axis=1)
        names += [pair.tobytes().decode() for pair in pairs]
    return names[:count]


def seconds_of_index(names: list[str]) -> float:
    text = json.dumps({"weight_map": dict.fromkeys(names, FIRST_SHARD)}).encode()
    began = time.thread_time()
    assert loader.parse("loader_parse_index", text) == (Status.GLM_OK, "")
    return time.thread_time() - began


def test_names_made_to_collide_cost_what_others_cost():
    others = [f"tensor {number:09}" for number in range(NUM_NAMES)]
    usual = min(seconds_of_index(others) for _ in range(3))
    assert seconds_of_index(colliding_names(NUM_NAMES)) < 10 * usual + 0.05


def test_one_large_object_does_not_slow_small_ones():
    small = {str(number): 0 for number in range(9)}
    many = [small] * 20_000
    large = {str(number): 0 for number in range(200_000)}
    documents = [json.dumps(parts).encode() for parts in ([large, []], [[], many], [large, many])]
    seconds = []
    for document in documents:
        began = time.thread_time()
        assert loader.parse("loader_parse_json", document) == (Status.GLM_OK, "")
        seconds.append(time.thread_time() - began)
    assert seconds[2] < 3 * (seconds[0] + seconds[1])


@pytest.mark.parametrize("size", [*range(1, 33), 63, 64, 65, 255, 256, 1000])
def test_the_keyed_hash_is_siphash_1_3(size):
    data = bytes(byte * 37 % 256 for byte in range(size))
    code = f"print(hash({data!r}) % 2**64)"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", code]
    wanted = int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert sys.hash_info.algorithm == "siphash13"
    assert loader.library().loader_hash(0, 0, data, size) == wanted


@pytest.mark.parametrize("name", ["config.json", INDEX_NAME])
def test_a_file_of_more_bytes_than_an_int32_counts_is_refused(name, checkpoint):
    with (checkpoint / name).open("r+b") as file:
        file.truncate(MORE_THAN_INT32)
    message = str(failure(checkpoint))
    assert name in message
    assert f"{MORE_THAN_INT32} bytes; the maximum is 100000000" in message


def test_escapes_in_values_of_config_are_shown_as_text(checkpoint):
    tamper.change_config(checkpoint, model_type=ESCAPES)
    assert f'model_type is "{SHOWN_ESCAPES}"' in str(failure(checkpoint))


def test_escapes_in_the_architecture_are_shown_as_text(checkpoint):
    tamper.change_config(checkpoint, architectures=[ESCAPES])
    assert inspect_checkpoint(checkpoint)["architecture"] == SHOWN_ESCAPES
    planned = plan(EngineOptions(checkpoint, device="cpu", max_seq=64))
    assert planned["architecture"] == SHOWN_ESCAPES


def test_escapes_in_names_of_tensors_are_refused_and_shown_as_text(checkpoint):
    tamper.add_tensor(checkpoint, ESCAPES, "F32", [2, 3], bytes(24))
    found = inspect_checkpoint(checkpoint)
    assert all(one["name"].isprintable() for one in found["tensors"])
    assert found["problems"][0]["tensor"] == SHOWN_ESCAPES
    assert "unprintable character" in found["problems"][0]["message"]
    assert str(failure(checkpoint)).isprintable()


def test_escapes_in_names_of_shards_are_refused_and_shown_as_text(checkpoint):
    tamper.change_index(checkpoint, lambda weight_map: weight_map.update({ESCAPES: "x\x1b[2J"}))
    message = str(failure(checkpoint))
    assert f"expected weight_map to map {SHOWN_ESCAPES} to a file name" in message
    assert message.isprintable()


def test_a_name_twice_and_an_unknown_dtype_are_shown_as_text(checkpoint):
    name = json.dumps(ESCAPES)
    header = f'{{{name}:{{"dtype":{name}}}}}'
    tamper.join_shard(checkpoint / FIRST_SHARD, header.encode(), b"")
    assert str(failure(checkpoint)).isprintable()
    twice = f"{{{name}:1,{name}:2}}".encode()
    message = loader.parse("loader_parse_json", twice)[1]
    assert SHOWN_ESCAPES in message
    assert message.isprintable()


def header_length_of(directory: Path, remainder: int) -> None:
    """Makes the length of the first shard's header leave this remainder when divided by 8."""
    header, data = tamper.split_shard(directory / FIRST_SHARD)
    text = json.dumps(header).encode()
    text += b" " * ((remainder - len(text)) % 8)
    (directory / FIRST_SHARD).write_bytes(struct.pack("<Q", len(text)) + text + data)


def logits_of(directory: Path) -> np.ndarray:
    options = EngineOptions(directory, device="cpu", max_seq=64, max_batch=2, num_threads=1)
    with Engine(options) as engine:
        return engine.prefill([1, 2, 3])[1]


@pytest.mark.parametrize("remainder", range(8))
def test_a_header_of_any_length_is_read(remainder, sound, checkpoint):
    header_length_of(checkpoint, remainder)
    assert problems(checkpoint) == []
    assert np.array_equal(logits_of(checkpoint), logits_of(sound))


@pytest.mark.parametrize("metadata", [{}, {"format": "pt"}, None])
def test_metadata_of_strings_is_read(metadata, checkpoint):
    path = checkpoint / FIRST_SHARD
    tamper.change_header(path, lambda header: header.update({"__metadata__": metadata}))
    assert problems(checkpoint) == []


@pytest.mark.parametrize("metadata", [{"step": 3}, {"a": None}, {"a": {"b": "c"}}, [], "pt", 1])
def test_metadata_of_anything_else_is_refused(metadata, checkpoint):
    path = checkpoint / FIRST_SHARD
    tamper.change_header(path, lambda header: header.update({"__metadata__": metadata}))
    problem = f"{FIRST_SHARD}: __metadata__: expected an object with only string values"
    assert problem in problems(checkpoint)


@pytest.mark.parametrize("leaves_link", [False, True])
def test_an_index_that_is_missing_is_a_problem(leaves_link, checkpoint):
    (checkpoint / INDEX_NAME).unlink()
    if leaves_link:
        (checkpoint / INDEX_NAME).symlink_to("nowhere")
    assert problems(checkpoint) == [
        f"{INDEX_NAME}: : the file is missing, but {FIRST_SHARD} exists"
    ]
    with pytest.raises(EngineError, match="the file is missing"):
        plan(EngineOptions(checkpoint, device="cpu", max_seq=64))


def test_an_index_of_too_many_files_is_refused(checkpoint):
    files = {str(number): f"{number}.safetensors" for number in range(10_001)}
    tamper.change_index(checkpoint, lambda weight_map: weight_map.update(files))
    assert f"{INDEX_NAME}: weight_map names more than 10000 files" in str(failure(checkpoint))


def test_a_config_alone_has_no_problem(checkpoint):
    for path in checkpoint.glob("*.safetensors*"):
        path.unlink()
    assert problems(checkpoint) == []


def cut_during_load(directory: Path, file: str, world_size: int, results) -> None:
    """Loads a checkpoint, one of whose shards is emptied at the first report of progress."""

    def cut(*_):
        os.truncate(directory / file, 0)

    options = EngineOptions(
        directory,
        device="cpu",
        world_size=world_size,
        max_seq=64,
        max_batch=2,
        num_threads=1,
        progress=cut,
    )
    try:
        Engine(options).close()
    except EngineError as error:
        results.put((int(error.status), str(error)))
    else:
        results.put((0, ""))


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_shard_cut_while_it_is_loaded_is_an_error(world_size, tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model", num_shards=2)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    arguments = (directory, SECOND_SHARD, world_size, results)
    process = context.Process(target=cut_during_load, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
    status, message = results.get(timeout=60)
    assert status == Status.GLM_IO_ERROR
    assert SECOND_SHARD in message
    assert "could not be read" in message


def cut_a_mapping_of_python(directory: Path, path: Path) -> None:
    """Loads a checkpoint, and reads a cut mapping of its own at the first report of progress."""

    def read(*_):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            file.truncate(0)
            mapped.read(1)

    options = EngineOptions(directory, device="cpu", max_seq=64, num_threads=1, progress=read)
    Engine(options).close()


def test_a_bus_error_of_others_is_theirs(sound, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 16))
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=cut_a_mapping_of_python, args=(sound, path))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGBUS
