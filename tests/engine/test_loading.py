"""What must not change the model: shards, dtypes of the same values, skipped layers, tied heads."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, inspect_checkpoint
from glm_engine.core.errors import EngineError
from tests.engine import tamper
from tests.engine.tamper import INDEX_NAME
from tools.checkpoint.layout import LayoutOptions
from tools.checkpoint.random_model import small_config, write_random_model

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
SEED = 11


def write(directory: Path, config: dict, num_shards: int = 1, **options) -> Path:
    write_random_model(directory, config, SEED, num_shards, LayoutOptions(**options))
    return directory


def ignoring(entry: str) -> dict:
    """A config whose ignore list has one entry more."""
    config = copy.deepcopy(small_config())
    config["quantization_config"]["ignore"].append(entry)
    return config


def logits(directory: Path, **options) -> np.ndarray:
    """Logits of every position of TOKENS."""
    chosen = {"max_seq": 64, "max_batch": 2, "num_threads": 1, **options}
    with Engine(EngineOptions(model_dir=directory, device="cpu", **chosen)) as engine:
        state, values = engine.prefill(TOKENS, all_positions=True)
        state.close()
        return values.copy()


def read_tensors(directory: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Dtype, shape and bytes of every tensor, by name."""
    result = {}
    for path in sorted(directory.glob("*.safetensors")):
        header, data = tamper.split_shard(path)
        for name, entry in tamper.tensors(header):
            begin, end = entry["data_offsets"]
            result[name] = (entry["dtype"], entry["shape"], data[begin:end])
    return result


def write_tensors(directory: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> None:
    """All tensors in one file without an index, the widest dtypes first."""
    for path in directory.glob("*.safetensors*"):
        path.unlink()
    width = {"F32": 4, "BF16": 2, "F8_E4M3": 1}
    header, data = {}, b""
    for name, (dtype, shape, content) in sorted(
        tensors.items(), key=lambda item: (-width[item[1][0]], item[0])
    ):
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += content
    tamper.join_shard(directory / "model.safetensors", header, data)


def widened(tensor: tuple[str, list[int], bytes]) -> tuple[str, list[int], bytes]:
    """The same values as float32."""
    dtype, shape, content = tensor
    assert dtype == "BF16"
    codes = np.frombuffer(content, dtype=np.uint16).astype(np.uint32) << 16
    return "F32", shape, codes.astype(np.uint32).tobytes()


def is_vector(name: str) -> bool:
    return name.endswith(("norm.weight", "layernorm.weight", ".bias", "_scale"))


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    return left.tobytes() == right.tobytes()


@pytest.mark.parametrize("num_shards", [2, 5, 40])
def test_shards_do_not_matter(num_shards, tmp_path):
    config = small_config()
    whole = write(tmp_path / "whole", config)
    (whole / INDEX_NAME).unlink()
    parts = write(tmp_path / "parts", config, num_shards)
    assert len(inspect_checkpoint(parts)["shards"]) == num_shards
    assert same_bits(logits(whole), logits(parts))


def test_one_tensor_a_shard(tmp_path):
    config = small_config(num_hidden_layers=2, n_routed_experts=2)
    whole = write(tmp_path / "whole", config)
    count = len(inspect_checkpoint(whole)["tensors"])
    parts = write(tmp_path / "parts", config, count)
    assert [shard["num_tensors"] for shard in inspect_checkpoint(parts)["shards"]] == [1] * count
    assert same_bits(logits(whole), logits(parts))


def test_vectors_of_bf16_and_float32(tmp_path):
    directory = write(tmp_path / "model", small_config(), scale_dtype="BF16")
    narrow = logits(directory)
    tensors = read_tensors(directory)
    changed = {
        name: widened(tensor) if is_vector(name) and tensor[0] == "BF16" else tensor
        for name, tensor in tensors.items()
    }
    assert sum(changed[name][0] != tensors[name][0] for name in tensors) > 70
    write_tensors(directory, changed)
    assert same_bits(narrow, logits(directory))


def test_scales_of_one_dimension(tmp_path):
    directory = write(tmp_path / "model", small_config())
    before = logits(directory)
    tensors = {
        name: (dtype, shape[:1] if name.endswith("_scale") else shape, content)
        for name, (dtype, shape, content) in read_tensors(directory).items()
    }
    write_tensors(directory, tensors)
    assert same_bits(before, logits(directory))


def test_prediction_layers_change_nothing(tmp_path):
    config = small_config(num_nextn_predict_layers=1)
    with_layers = write(tmp_path / "with", config, prediction_has_own_vocabulary=True)
    without = write(tmp_path / "without", config, with_prediction_layers=False)
    assert inspect_checkpoint(with_layers)["num_parameters_skipped"] > 0
    assert inspect_checkpoint(without)["num_parameters_skipped"] == 0
    assert same_bits(logits(with_layers), logits(without))


@pytest.mark.parametrize("keeps_head", [False, True])
def test_tied_head(keeps_head, tmp_path):
    config = small_config(fp8=False)
    directory = write(tmp_path / "model", config)
    tensors = read_tensors(directory)
    embedding = tensors["model.embed_tokens.weight"]
    write_tensors(directory, {**tensors, "lm_head.weight": embedding})
    untied = logits(directory)
    tamper.change_config(directory, tie_word_embeddings=True)
    if not keeps_head:
        write_tensors(directory, {k: v for k, v in tensors.items() if k != "lm_head.weight"})
    assert inspect_checkpoint(directory)["problems"] == []
    assert same_bits(untied, logits(directory))


def test_a_tied_head_of_other_values_is_reported(tmp_path):
    directory = write(tmp_path / "model", small_config(fp8=False))
    tamper.change_config(directory, tie_word_embeddings=True)
    problems = inspect_checkpoint(directory)["problems"]
    assert [one["tensor"] for one in problems] == ["lm_head.weight"]
    assert (
        "this tensor to model.embed_tokens.weight, but the two tensors have different values"
        in problems[0]["message"]
    )
    with pytest.raises(EngineError, match="the two tensors have different values"):
        Engine(EngineOptions(directory, device="cpu", max_seq=64, num_threads=1)).close()


@pytest.mark.parametrize(("key", "meaning"), [("n_shared_experts", 0), ("norm_topk_prob", False)])
def test_null_means_none_of_it(key, meaning, tmp_path):
    directory = write(tmp_path / "model", small_config(**{key: meaning}))
    expected = logits(directory)
    tamper.rewrite_json(directory / "config.json", lambda config: config.update({key: None}))
    assert inspect_checkpoint(directory)["problems"] == []
    assert same_bits(logits(directory), expected)


@pytest.mark.parametrize("entry", [r"re:.*\.o_proj$", "model.layers.1.self_attn.o_proj"])
def test_ignored_modules_stay_plain(entry, tmp_path):
    config = ignoring(entry)
    directory = write(tmp_path / "model", config)
    dtypes = {t["name"]: t["dtype"] for t in inspect_checkpoint(directory)["tensors"]}
    assert dtypes["model.layers.1.self_attn.o_proj.weight"] == "BF16"
    assert dtypes["model.layers.1.self_attn.q_proj.weight"] == "F8_E4M3"
    assert np.isfinite(logits(directory)).all()


def test_joined_weights_of_two_dtypes_are_refused(tmp_path):
    config = ignoring("model.layers.1.self_attn.k_proj")
    directory = write(tmp_path / "model", config)
    problems = inspect_checkpoint(directory)["problems"]
    assert [p["tensor"] for p in problems] == ["model.layers.1.self_attn.k_proj.weight"]
    assert "BF16" in problems[0]["message"]
    assert "F8_E4M3" in problems[0]["message"]


def test_experts_of_two_dtypes_are_refused(tmp_path):
    directory = write(tmp_path / "model", ignoring(r"re:.*layers\.2\.mlp\.experts.*down_proj"))
    problems = inspect_checkpoint(directory)["problems"]
    assert {p["tensor"] for p in problems} == {
        f"model.layers.2.mlp.experts.{expert}.down_proj.weight" for expert in range(8)
    }


def test_progress_reaches_its_total(tmp_path):
    directory = write(tmp_path / "model", small_config())
    reports: list[tuple[int, int, str]] = []
    options = EngineOptions(
        model_dir=directory,
        device="cpu",
        max_seq=64,
        num_threads=1,
        progress=lambda done, total, stage: reports.append((done, total, stage)),
    )
    Engine(options).close()
    done = [report[0] for report in reports]
    assert done == sorted(done)
    assert reports[-1][0] == reports[-1][1]


def test_problems_are_valid_json_whatever_the_names(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    name = 'quote" back\\slash \u00e9 \U0001f5fc'
    tamper.add_tensor(directory, name, "F32", [2, 3], bytes(24))
    inspected = json.loads(json.dumps(inspect_checkpoint(directory)))
    assert [problem["tensor"] for problem in inspected["problems"]] == [name]
    assert name in {tensor["name"] for tensor in inspected["tensors"]}
