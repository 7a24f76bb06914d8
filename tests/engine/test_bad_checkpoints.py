"""Every unsound shard, header and index is refused by name, with a status, and never crashes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from glm_engine.core.engine import Engine, EngineOptions, inspect_checkpoint
from glm_engine.core.errors import EngineError, Status
from tests.engine import tamper
from tests.engine.tamper import FIRST_SHARD, INDEX_NAME, SECOND_SHARD

SCALE = "model.layers.1.mlp.experts.3.up_proj.weight_scale"
WEIGHT = "model.layers.1.mlp.experts.3.up_proj.weight"
NORM = "model.layers.2.input_layernorm.weight"
NAN_BF16, INFINITY_BF16, MINUS_ONE_BF16 = b"\xc0\x7f", b"\x80\x7f", b"\x80\xbf"
NAN_F32, INFINITY_F32, MINUS_ONE_F32 = b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xbf"

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return tamper.small_checkpoint(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def checkpoint(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def failure(directory: Path, **options) -> EngineError:
    """The error that opening the checkpoint ends with."""
    chosen = {"max_seq": 64, "max_batch": 2, "num_threads": 1, **options}
    with pytest.raises(EngineError) as caught:
        Engine(EngineOptions(model_dir=directory, device="cpu", **chosen)).close()
    return caught.value


def header_entry(name: str, **changes) -> Damage:
    def damage(directory: Path) -> None:
        path = tamper.shard_of(directory, name)
        tamper.change_header(path, lambda header: header[name].update(changes))

    return damage


def first_header(change: Callable[[dict], object]) -> Damage:
    return lambda directory: tamper.change_header(directory / FIRST_SHARD, change)


def moved_offsets(first: int, last: int) -> Damage:
    """Adds to both data_offsets of the second tensor of the first shard."""

    def change(header: dict) -> None:
        entry = list(tamper.tensors(header))[1][1]
        begin, end = entry["data_offsets"]
        entry["data_offsets"] = [begin + first, end + last]

    return first_header(change)


def reversed_offsets(header: dict) -> None:
    entry = next(tamper.tensors(header))[1]
    entry["data_offsets"] = entry["data_offsets"][::-1]


def truncated(directory: Path, count: int) -> None:
    path = directory / FIRST_SHARD
    path.write_bytes(path.read_bytes()[:-count])


def cut_to(directory: Path, count: int) -> None:
    path = directory / FIRST_SHARD
    path.write_bytes(path.read_bytes()[:count])


def long_length(directory: Path, length: int) -> None:
    path = directory / FIRST_SHARD
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])


def raw_header(text: bytes) -> Damage:
    def damage(directory: Path) -> None:
        path = directory / FIRST_SHARD
        tamper.join_shard(path, text, tamper.split_shard(path)[1])

    return damage


def index_entry(name: str, file: object) -> Damage:
    return lambda directory: tamper.change_index(directory, lambda m: m.update({name: file}))


SHARD_DAMAGE: dict[str, tuple[Damage, list[str]]] = {
    "truncated by a byte": (lambda d: truncated(d, 1), [FIRST_SHARD, "past the end"]),
    "truncated in its header": (lambda d: cut_to(d, 100), [FIRST_SHARD, "header length"]),
    "seven bytes": (lambda d: cut_to(d, 7), [FIRST_SHARD, "7 bytes", "at least 8"]),
    "empty": (lambda d: cut_to(d, 0), [FIRST_SHARD, "empty"]),
    "header longer than the file": (lambda d: long_length(d, 10**8), [FIRST_SHARD, "100000000"]),
    "header of 2^63 bytes": (lambda d: long_length(d, 2**63), [FIRST_SHARD, "9223372036854775808"]),
    "header that is not JSON": (raw_header(b"\x80\x04pickle"), [FIRST_SHARD, "invalid JSON"]),
    "header with a list": (raw_header(b"[1]"), [FIRST_SHARD, "array"]),
    "header nested 10,000 deep": (
        raw_header(b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
        [FIRST_SHARD, "deeper than 64"],
    ),
    "header with a name twice": (
        raw_header(b'{"a":{"dtype":"F32"},"a":{"dtype":"F32"}}'),
        [FIRST_SHARD, '"a"', "twice"],
    ),
    "offsets that overlap": (moved_offsets(-8, -8), [FIRST_SHARD, "overlap"]),
    "offsets that leave a gap": (moved_offsets(8, 8), [FIRST_SHARD]),
    "offsets backwards": (first_header(reversed_offsets), [FIRST_SHARD, "negative or reversed"]),
    "offsets of another size": (moved_offsets(0, 8), [FIRST_SHARD, "needs"]),
    "offsets past the end": (
        header_entry(WEIGHT, data_offsets=[2**40, 2**40 + 2048]),
        [WEIGHT, "past the end"],
    ),
    "unknown dtype": (header_entry(WEIGHT, dtype="F9"), [WEIGHT, '"F9"', "unknown"]),
    "no dtype": (header_entry(WEIGHT, dtype=None), [WEIGHT, "dtype"]),
    "negative shape": (header_entry(WEIGHT, shape=[-32, -64]), [WEIGHT, "shape"]),
    "shape of 2^120": (header_entry(WEIGHT, shape=[2**60, 2**60]), [WEIGHT, "shape"]),
    "shape of other bytes": (header_entry(WEIGHT, shape=[32, 65]), [WEIGHT, "2080"]),
    "shape that the config denies": (
        header_entry(WEIGHT, shape=[64, 32]),
        [WEIGHT, "[32, 64]", "[64, 32]"],
    ),
    "dtype of the same size": (
        header_entry(WEIGHT, dtype="F8_E5M2"),
        [WEIGHT, "F8_E5M2", "BF16 or F32"],
    ),
}

INDEX_DAMAGE: dict[str, tuple[Damage, list[str]]] = {
    "a shard that is not there": (
        lambda d: (d / SECOND_SHARD).unlink(),
        [SECOND_SHARD, "No such file"],
    ),
    "an entry for a shard that is not there": (
        index_entry(WEIGHT, "model-00009-of-00002.safetensors"),
        ["model-00009-of-00002.safetensors", "No such file"],
    ),
    "an entry in the wrong shard": (
        lambda d: index_entry(
            WEIGHT, SECOND_SHARD if tamper.shard_of(d, WEIGHT).name == FIRST_SHARD else FIRST_SHARD
        )(d),
        [INDEX_NAME, WEIGHT, "but it is in"],
    ),
    "a tensor that its shard lacks": (
        index_entry("model.layers.0.ghost.weight", FIRST_SHARD),
        [INDEX_NAME, "model.layers.0.ghost.weight", "does not contain it"],
    ),
    "a tensor left out": (
        lambda d: tamper.change_index(d, lambda m: m.pop(WEIGHT)),
        [WEIGHT, "does not list"],
    ),
    "a path instead of a name": (
        index_entry(WEIGHT, "../x"),
        [INDEX_NAME, WEIGHT, "without a folder"],
    ),
    "a number for a name": (index_entry(WEIGHT, 3), [INDEX_NAME, WEIGHT, "without a folder"]),
    "no weight_map": (
        lambda d: tamper.rewrite_json(d / INDEX_NAME, lambda _: {"metadata": {}}),
        [INDEX_NAME, "weight_map"],
    ),
    "a weight_map without tensors": (
        lambda d: tamper.change_index(d, lambda m: m.clear()),
        [INDEX_NAME, "model.embed_tokens.weight", "missing"],
    ),
    "no JSON": (lambda d: (d / INDEX_NAME).write_text("{"), [INDEX_NAME, "invalid JSON"]),
    "nothing at all": (lambda d: (d / INDEX_NAME).write_text(""), [INDEX_NAME, "empty"]),
    "a folder for a shard": (
        lambda d: ((d / SECOND_SHARD).unlink(), (d / SECOND_SHARD).mkdir()),
        [SECOND_SHARD, "regular file"],
    ),
}


def add_copy(directory: Path, name: str) -> None:
    tamper.add_tensor(directory, name, "F32", [2, 3], bytes(24))


def set_scale(value_bf16: bytes, value_f32: bytes) -> Damage:
    def damage(directory: Path) -> None:
        header, _ = tamper.split_shard(tamper.shard_of(directory, SCALE))
        value = value_bf16 if header[SCALE]["dtype"] == "BF16" else value_f32
        tamper.set_bytes(directory, SCALE, 5 * len(value), value)

    return damage


TENSOR_DAMAGE: dict[str, tuple[Damage, list[str]]] = {
    "a weight that is missing": (lambda d: tamper.drop_tensor(d, WEIGHT), [WEIGHT, "missing"]),
    "a norm that is missing": (lambda d: tamper.drop_tensor(d, NORM), [NORM, "missing"]),
    "a scale that is missing": (lambda d: tamper.drop_tensor(d, SCALE), [SCALE, "missing"]),
    "a tensor nobody uses": (
        lambda d: add_copy(d, "model.layers.1.mlp.experts.8.up_proj.weight"),
        ["model.layers.1.mlp.experts.8.up_proj.weight", "the model does not use"],
    ),
    "a scale that is zero": (set_scale(b"\0\0", b"\0\0\0\0"), [SCALE, "row 5", "zero"]),
    "a scale that is NaN": (set_scale(NAN_BF16, NAN_F32), [SCALE, "row 5", "nan", "finite"]),
    "a scale that is infinite": (set_scale(INFINITY_BF16, INFINITY_F32), [SCALE, "row 5", "inf"]),
    "a scale that is negative": (set_scale(MINUS_ONE_BF16, MINUS_ONE_F32), [SCALE, "-1", "zero"]),
}

DAMAGE = {**SHARD_DAMAGE, **INDEX_DAMAGE, **TENSOR_DAMAGE}


@pytest.mark.parametrize("name", DAMAGE)
def test_refused_by_name(name, checkpoint):
    damage, words = DAMAGE[name]
    damage(checkpoint)
    error = failure(checkpoint)
    assert error.status in {
        Status.GLM_INVALID_CHECKPOINT,
        Status.GLM_NOT_FOUND,
        Status.GLM_INVALID_ARGUMENT,
    }
    for word in words:
        assert word in str(error)


@pytest.mark.parametrize("name", [*SHARD_DAMAGE, *TENSOR_DAMAGE])
def test_inspect_lists_the_problem(name, checkpoint):
    damage, words = DAMAGE[name]
    damage(checkpoint)
    problems = inspect_checkpoint(checkpoint)["problems"]
    lines = [f"{p['file']} {p['tensor']} {p['message']}" for p in problems]
    assert any(all(word in line for word in words) for line in lines), lines


def test_many_problems_are_counted(checkpoint):
    for expert in range(4):
        tamper.drop_tensor(checkpoint, f"model.layers.1.mlp.experts.{expert}.up_proj.weight")
    message = str(failure(checkpoint))
    assert "4 problems" in message
    assert "experts.0.up_proj.weight" in message
    assert len(inspect_checkpoint(checkpoint)["problems"]) == 4


def test_sound_checkpoint_has_no_problems(sound):
    inspected = inspect_checkpoint(sound)
    assert inspected["problems"] == []
    assert [shard["file"] for shard in inspected["shards"]] == [FIRST_SHARD, SECOND_SHARD]


def test_single_file_without_index(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "single", num_shards=1)
    (directory / INDEX_NAME).unlink()
    inspected = inspect_checkpoint(directory)
    assert inspected["problems"] == []
    assert [shard["file"] for shard in inspected["shards"]] == ["model.safetensors"]
    Engine(EngineOptions(model_dir=directory, device="cpu", max_seq=64, num_threads=1)).close()


def test_directory_without_weights(checkpoint):
    for path in checkpoint.glob("*.safetensors*"):
        path.unlink()
    error = failure(checkpoint)
    assert error.status == Status.GLM_NOT_FOUND
    assert INDEX_NAME in str(error)


def test_directory_that_is_not_there(tmp_path):
    error = failure(tmp_path / "nowhere")
    assert error.status == Status.GLM_NOT_FOUND
    assert "nowhere" in str(error)


def test_prediction_layers_are_reported_and_skipped(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model", num_nextn_predict_layers=1)
    inspected = inspect_checkpoint(directory)
    assert inspected["problems"] == []
    skipped = [tensor["name"] for tensor in inspected["tensors"] if tensor["skipped"]]
    assert skipped
    assert all(name.startswith("model.layers.3.") for name in skipped)
    assert inspected["num_parameters_skipped"] > 0
    Engine(EngineOptions(model_dir=directory, device="cpu", max_seq=64, num_threads=1)).close()
