"""`glm inspect`: what it lists and what it finds wrong."""

import re
import subprocess
import sys

from glm_engine.cli.options import CAPITALS
from tests.python.commands.running import CPU, ENVIRONMENT, ROOT, glm, glm_json, refused
from tools.checkpoint.layout import LayoutOptions
from tools.checkpoint.random_model import small_config, write_random_model


def test_closed_output_is_no_traceback():
    command = f"{sys.executable} -m glm_engine inspect | head -n 1"
    result = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert result.stderr == ""


def test_inspect_lists_the_capitals():
    found = glm_json("inspect")
    assert found["problems"] == []
    assert len(found["tensors"]) == 312
    assert len(found["shards"]) == 3
    assert all(one["file"].endswith(".safetensors") for one in found["tensors"])
    skipped = {one["name"].split(".")[2] for one in found["tensors"] if one["skipped"]}
    assert skipped == {"4"}
    by_name = {one["name"]: one for one in found["tensors"]}
    head = by_name["lm_head.weight"]
    assert (head["shape"], head["bytes"]) == ([2048, 256], 2048 * 256 * 2)


def test_inspect_prints_tables():
    result = glm("inspect", "--match", "layers.1.*q_proj")
    assert result.returncode == 0
    assert "model.layers.1.self_attn.q_proj.weight_scale" in result.stdout
    assert "model.layers.2" not in result.stdout
    assert re.search(r"problems +0", result.stdout)


def test_inspect_names_the_problem(tmp_path):
    for path in CAPITALS.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    shard = tmp_path / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    result = glm("inspect", tmp_path)
    assert result.returncode in (1, 2)
    assert shard.name in result.stdout + result.stderr


def test_inspect_of_a_folder_that_is_not_there():
    assert "absent" in refused("inspect", "absent")


def test_a_promised_layer_that_the_files_lack_is_said(tmp_path):
    config = small_config(num_nextn_predict_layers=1)
    options = LayoutOptions(with_prediction_layers=False)
    write_random_model(tmp_path, config, seed=1, options=options)
    lack = (
        "missing: config.json promises a prediction layer (num_nextn_predict_layers is 1), but"
        " model.safetensors lacks model.layers.3.eh_proj.weight"
    )
    inspected = glm("inspect", "--summary", tmp_path)
    assert inspected.returncode == 0
    assert re.search(rf"^prediction layer +{re.escape(lack)}$", inspected.stdout, re.MULTILINE)
    planned = glm("plan", tmp_path, *CPU).stdout
    assert re.search(rf"^Prediction layer +{re.escape(lack)}$", planned, re.MULTILINE)
    assert re.search(r"^prediction layer +yes$", glm("inspect").stdout, re.MULTILINE)
