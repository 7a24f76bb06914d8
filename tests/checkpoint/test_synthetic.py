import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors import safe_open

from glm_engine.core.engine import Engine, EngineOptions
from glm_engine.core.layout import CONFIGS
from tools.checkpoint.random_model import small_config, write_random_model
from tools.checkpoint.shards import INDEX_NAME, write_model
from tools.checkpoint.synthetic import (
    BLOCK_ELEMENTS,
    RepeatedTensors,
    main,
)

GLM_4_7_FP8 = CONFIGS / "glm-4.7-fp8.json"


@pytest.fixture(scope="module")
def glm_4_7_fp8(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sparse") / "glm-4.7-fp8"
    result = CliRunner().invoke(main, ["--config", str(GLM_4_7_FP8), str(folder)])
    assert result.exit_code == 0, result.output
    assert "87,553 tensors" in result.output
    return folder


def test_index_has_all_tensors_in_93_shards(glm_4_7_fp8):
    index = json.loads((glm_4_7_fp8 / INDEX_NAME).read_text())
    assert len(index["weight_map"]) == 87_553
    assert len(set(index["weight_map"].values())) == 93
    assert index["metadata"]["total_size"] == 354_902_011_520


def test_files_have_full_length_and_take_little_space(glm_4_7_fp8):
    shards = sorted(glm_4_7_fp8.glob("*.safetensors"))
    index = json.loads((glm_4_7_fp8 / INDEX_NAME).read_text())
    assert len(shards) == 93
    assert sum(p.stat().st_size for p in shards) > index["metadata"]["total_size"]
    assert sum(p.stat().st_blocks * 512 for p in shards) < 64e6


def test_the_safetensors_library_accepts_a_sparse_shard(glm_4_7_fp8):
    with safe_open(glm_4_7_fp8 / "model-00047-of-00093.safetensors", framework="numpy") as file:
        names = list(file.keys())
    assert len(names) > 800
    assert all(name.startswith("model.layers.") for name in names)


def test_sparse_and_full_checkpoints_have_the_same_headers(tmp_path):
    config = small_config()
    write_model(tmp_path / "sparse", config, 2, None)
    write_random_model(tmp_path / "full", config, seed=0, num_shards=2)
    for full in (tmp_path / "full").glob("*.safetensors"):
        sparse = (tmp_path / "sparse" / full.name).read_bytes()
        data = full.read_bytes()
        assert len(sparse) == len(data)
        header_end = 8 + int.from_bytes(data[:8], "little")
        assert sparse[:header_end] == data[:header_end]
        assert not any(sparse[header_end:])


def test_full_checkpoint_by_command(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(small_config(num_nextn_predict_layers=1)))
    arguments = [
        "--config",
        str(config),
        "--shards",
        "2",
        "--data",
        "random",
        "--prediction-layers",
    ]
    result = CliRunner().invoke(main, [*arguments, str(tmp_path / "model")])
    assert result.exit_code == 0, result.output
    index = json.loads((tmp_path / "model" / INDEX_NAME).read_text())
    assert "model.layers.3.eh_proj.weight" in index["weight_map"]


def test_repeated_data_has_the_headers_of_random_data_and_loads(tmp_path):
    config = small_config(vocab_size=BLOCK_ELEMENTS // 64 + 8)
    write_model(tmp_path / "repeated", config, 2, RepeatedTensors(config, seed=3))
    write_random_model(tmp_path / "random", config, seed=3, num_shards=2)
    for random in (tmp_path / "random").glob("*.safetensors"):
        data, repeated = random.read_bytes(), (tmp_path / "repeated" / random.name).read_bytes()
        header_end = 8 + int.from_bytes(data[:8], "little")
        assert repeated[:header_end] == data[:header_end]
        assert len(repeated) == len(data)
    options = EngineOptions(model_dir=tmp_path / "repeated", device="cpu", max_batch=1, max_seq=64)
    with Engine(options) as engine:
        _, logits = engine.prefill([3, 1, 4])
    assert np.isfinite(logits).all()
