"""`glm plan`: figures of published configurations, layouts, refusals."""

import re

import pytest

from glm_engine import cli
from tests.python.commands.running import CONFIGS, CPU, glm, glm_json, refused

GLM_4_7 = {
    "num_parameters": 352_797_829_024,
    "checkpoint_bytes": 354_902_000_000,
    "kv_bytes_per_token_bf16": 368 * 1024,
}


@pytest.mark.parametrize("command", ["inspect", "plan"])
def test_the_published_configuration_alone(command):
    arguments = ["--summary"] if command == "inspect" else ["--world-size", "8"]
    if command == "plan":
        arguments += [*CPU, "--device-memory", "1TB", "--max-batch", "1"]
    found = glm_json(command, CONFIGS / "glm-4.7-fp8.json", *arguments)
    assert found["num_parameters"] == GLM_4_7["num_parameters"]
    assert found["checkpoint_bytes"] == pytest.approx(GLM_4_7["checkpoint_bytes"], rel=1e-4)


def test_plan_of_the_published_configuration():
    arguments = [*CPU, "--world-size", 8, "--device-memory", "1TB", "--max-batch", 1]
    planned = glm_json("plan", CONFIGS / "glm-4.7-fp8.json", *arguments)
    assert planned["fits"] is True
    assert planned["kv_bytes_per_token_bf16"] == GLM_4_7["kv_bytes_per_token_bf16"]
    assert round(planned["num_parameters_with_nextn"] / 1e9, 2) == 356.79
    assert [rank["rank"] for rank in planned["ranks"]] == list(range(8))
    printed = glm("plan", CONFIGS / "glm-4.7-fp8.json", *arguments).stdout
    assert "352.80 B" in printed
    assert "354.9 GB" in printed
    assert "356.79 B" in printed
    assert "368.0 KiB" in printed
    assert re.search(r"^step +512 tokens at most$", printed, re.MULTILINE)
    assert printed.rstrip().endswith("fits")


@pytest.mark.parametrize("name", ["glm-4.5-air-fp8", "glm-4.7-fp8"])
def test_plan_of_a_model_that_bench_knows_by_name(name):
    arguments = [*CPU, "--device-memory", "2TB", "--world-size", 4]
    named, config = (glm_json("plan", one, *arguments) for one in (name, CONFIGS / f"{name}.json"))
    assert (named.pop("model_dir"), config.pop("model_dir")) == (
        name,
        str(CONFIGS / f"{name}.json"),
    )
    assert named == config
    assert [rank["memory_bytes"] for rank in named["ranks"]] == [2 * 10**12 * 90 // 100 // 4] * 4


def test_a_limit_above_the_memory_that_is_planned_for_is_refused(capsys):
    arguments = ["plan", *CPU, "--device-memory", "100MB", "--memory-limit"]
    assert cli.main([*arguments, "100MB"]) == 0
    capsys.readouterr()
    assert cli.main([*arguments, "101MB"]) == 1
    said = "does not fit: option memory_limit_bytes is 101000000; expected at most"
    assert capsys.readouterr().out.startswith(said)


def test_plan_refuses_with_the_reason():
    arguments = [CONFIGS / "glm-4.7-fp8.json", *CPU, "--device-memory", "80GB"]
    planned = glm_json("plan", *arguments, code=1)
    assert planned["fits"] is False
    assert planned["reason"]
    printed = glm("plan", *arguments)
    assert printed.returncode == 1
    assert "does not fit: " in printed.stdout


@pytest.mark.parametrize("layout", ["tensor_parallel", "expert_parallel"])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_plan_of_the_capitals(world_size, layout):
    planned = glm_json("plan", *CPU, "--world-size", world_size, "--expert-layout", layout)
    assert planned["fits"] is True
    assert planned["expert_layout"] == layout
    assert len(planned["ranks"]) == world_size
    for rank in planned["ranks"]:
        parts = ("weight_bytes", "kv_bytes", "buffer_bytes")
        assert rank["total_bytes"] == sum(rank[part] for part in parts)


def test_plan_of_heads_that_ranks_cannot_split():
    assert "3" in refused("plan", CONFIGS / "glm-4.7-fp8.json", *CPU, "--world-size", 3)


def test_plan_of_a_configuration_that_is_none(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{")
    assert str(path) in refused("plan", path, *CPU)


def test_plan_lists_its_buffers():
    planned = glm_json("plan", *CPU)
    printed = glm("plan", *CPU, "--buffers").stdout
    for name, size in planned["buffers"].items():
        assert re.search(rf"^{name} +{size:,}$", printed, re.MULTILINE)
    assert "residual" not in glm("plan", *CPU).stdout


def test_a_cache_of_codes_on_the_cpu():
    line = refused("plan", *CPU, "--kv-dtype", "fp8_e4m3", code=3)
    assert "the device does not support KV cache pages of kv_dtype F8_E4M3" in line
