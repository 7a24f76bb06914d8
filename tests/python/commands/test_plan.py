"""`glm plan`: figures of published configurations, layouts, refusals."""

import re

import pytest

from glm_engine.cli import command_line
from glm_engine.core.console import human_bytes
from glm_engine.core.layout import CONFIGS
from tests.nvidia_driver import skip_where_a_gpu_is
from tests.python.commands.running import CPU, ENVIRONMENT, glm, glm_json, refused

GLM_4_7 = {
    "num_parameters": 352_797_829_024,
    "checkpoint_bytes": 354_902_000_000,
    "kv_bytes_per_token_bf16": 368 * 1024,
}


MORE_MEMORY = "Use a machine with more memory."
FOUR_H200 = ("glm-4.7-fp8", "--device-memory", "141GB", "--world-size", 4)
ROWS_OF_A_GPU = (
    "Model GPUs Available_per_GPU Weights_per_GPU Workspace_per_GPU KV_cache_per_GPU Free_per_GPU"
    " Context_length Concurrent_requests KV_cache_capacity Maximum_batch Tokens_per_pass"
)


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
    assert ".json, 352.80 B parameters, 354.9 GB of weights\n" in printed
    assert re.search(r"^CPU +1.0 TB of free memory, 8 ranks$", printed, re.MULTILINE)
    assert re.search(r"^Tokens per pass +up to 512$", printed, re.MULTILINE)
    assert printed.splitlines()[-1] == "Fits."


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
    assert command_line.main([*arguments, "100MB"]) == 0
    capsys.readouterr()
    assert command_line.main([*arguments, "101MB"]) == 1
    said = "Does not fit: --memory-limit is 101.00 MB, which is 1.00 MB more than the"
    assert capsys.readouterr().out.startswith(said)


def test_plan_refuses_with_the_reason():
    arguments = [CONFIGS / "glm-4.7-fp8.json", *CPU, "--device-memory", "80GB"]
    planned = glm_json("plan", *arguments, code=1)
    assert planned["fits"] is False
    assert planned["reason"]
    printed = glm("plan", *arguments)
    assert printed.returncode == 1
    assert "\nDoes not fit: weights of " in printed.stdout
    assert printed.stdout.splitlines()[-1].endswith(" short). " + MORE_MEMORY)


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


def test_a_cache_of_bfloat16_on_the_cpu():
    line = refused("plan", *CPU, "--kv-dtype", "bfloat16", code=3)
    use = "use float32 or fp8_e4m3"
    assert line == f"glm: device cpu does not support --kv-dtype bfloat16; {use}\n"


def test_a_cache_of_codes_on_the_cpu():
    plain, codes = (glm_json("plan", *CPU, "--kv-dtype", name) for name in ("float32", "fp8_e4m3"))
    assert codes["kv_dtype"] == "fp8_e4m3"
    assert plain["page_bytes"] == 4 * codes["page_bytes"]


def test_a_cache_of_float32_on_a_gpu():
    line = refused("plan", *FOUR_H200, "--kv-dtype", "float32", code=3)
    use = "use bfloat16 or fp8_e4m3"
    assert line == f"glm: device cuda does not support --kv-dtype float32; {use}\n"


@pytest.mark.parametrize("name", ["-c", "--max-batch", "--max-step-tokens", "--world-size"])
def test_zero_means_the_default(name):
    arguments = ("plan", "glm-4.7-fp8", "--device-memory", "141GB")
    assert glm_json(*arguments, name, 0) == glm_json(*arguments)


@pytest.mark.parametrize("name", ["-c", "--max-seq", "--max-model-len"])
def test_a_context_of_zero_is_the_models(name, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "GLM_MAX_SEQ", "64")
    planned = glm_json("plan", *CPU, name, 0)
    assert planned["max_seq"] == planned["model_max_seq"]


def test_device_memory_means_a_gpu():
    planned = glm_json("plan", *FOUR_H200)
    assert (planned["device"], planned["world_size"], planned["fits"]) == ("cuda", 4, True)
    assert glm_json("plan", *FOUR_H200, "--device", "cuda") == planned
    assert glm_json("plan", *FOUR_H200, *CPU, code=1)["device"] == "cpu"


def test_the_table_of_four_gpus():
    planned, result = glm_json("plan", *FOUR_H200), glm("plan", *FOUR_H200)
    table, verdict = result.stdout.removesuffix("\n").split("\n\n")
    rows = dict(re.split(" {2,}", line, maxsplit=1) for line in table.splitlines())
    assert [name.replace(" ", "_") for name in rows] == ROWS_OF_A_GPU.split()
    assert verdict == "Fits."
    rank = planned["ranks"][0]
    assert rows["Available per GPU"] == "136.77 GB (97% of free memory; --memory-limit)"
    assert rows["Weights per GPU"].endswith(" GB, including a copy of the embeddings and routers")
    shown = {"Weights": "weight_bytes", "Workspace": "buffer_bytes", "KV cache": "kv_bytes"}
    for name, key in shown.items():
        assert rows[f"{name} per GPU"].startswith(f"{rank[key] / 1e9:.1f} GB")
    assert rows["Free per GPU"] == f"{141 - rank['total_bytes'] / 1e9:.1f} GB"
    assert rows["KV cache capacity"] == f"{planned['tokens_of_context']:,} tokens"
    assert rows["Context length"].startswith(f"{planned['max_seq']:,} tokens")
    assert not re.search(r"\d{7}", result.stdout)


def test_what_draft_tokens_cost_is_said():
    asked = ("plan", "glm-4.5-air-fp8", "--device-memory", "141GB", "--max-batch", "8")
    plain, planned = glm_json(*asked), glm_json(*asked, "--speculate", "lookup:3")
    assert "draft_bytes" not in plain
    more = planned["ranks"][0]["buffer_bytes"] - plain["ranks"][0]["buffer_bytes"]
    assert planned["draft_bytes"] == more > 0
    assert planned["buffers"]["logits"] == 4 * plain["buffers"]["logits"]
    assert planned["max_draft_tokens"] == 3
    table = glm(*asked, "--speculate", "lookup:3").stdout
    size = human_bytes(more)
    row = rf"^Draft tokens +up to 3 per request; {size} of the workspace per GPU$"
    assert re.search(row, table, re.MULTILINE)
    assert "Draft tokens" not in glm(*asked, "--speculate", "off").stdout


def test_what_the_prediction_layer_costs_is_said():
    asked = ("plan", "glm-4.5-air-fp8", "--device-memory", "141GB", "--max-batch", "8")
    plain, planned = glm_json(*asked), glm_json(*asked, "--speculate", "auto")
    assert (plain["prediction_layer"], planned["prediction_layer"]) == ("available", "loaded")
    more = planned["ranks"][0]["weight_bytes"] - plain["ranks"][0]["weight_bytes"]
    assert planned["draft_weight_bytes"] == more > 2e9
    cache = planned["ranks"][0]["kv_bytes"]
    assert planned["draft_kv_bytes"] * 47 == cache
    table = glm(*asked, "--speculate", "auto").stdout
    sizes = f"{human_bytes(more)} of the weights, {human_bytes(cache // 47)} of the KV cache"
    assert re.search(rf"^Prediction layer +{sizes} per GPU$", table, re.MULTILINE)
    assert "Prediction layer" not in glm(*asked).stdout


def test_the_memory_in_a_refusal_is_that_of_the_table():
    result = glm("plan", "glm-4.5-air-fp8", *CPU, "--device-memory", "22.5GB")
    assert result.returncode == 1
    assert "\nAvailable  20.25 GB (90% of free memory; --memory-limit)\n" in result.stdout
    assert "but only 20.25 GB is available" in result.stdout
    assert re.search(r"\nWeights +[\d.]+ GB\n", result.stdout)
    limited = glm("plan", "glm-4.5-air-fp8", "--device-memory", "80GB", "--memory-limit", "72GB")
    assert (
        "\nAvailable per GPU    72.00 GB (90% of free memory; --memory-limit)\n" in limited.stdout
    )


def test_too_few_gpus_are_told_how_many_would_do():
    arguments = ("glm-4.7-fp8", "--device-memory", "80GB", "--world-size", 4)
    result = glm("plan", *arguments)
    assert result.returncode == 1
    said = result.stdout.splitlines()[-1]
    assert said.startswith("Does not fit: weights of ")
    assert said.endswith(" short). Use more GPUs or GPUs with more memory. --world-size 8 fits.")
    assert "max-seq" not in said
    assert "Context length" not in result.stdout
    assert glm_json("plan", "glm-4.7-fp8", "--device-memory", "80GB")["world_size"] == 8


def test_options_of_a_plan_for_gpus():
    options = ("--kv-dtype", "fp8_e4m3", "--max-batch", 7, "--max-seq", 4096)
    planned = glm_json("plan", *FOUR_H200, *options)
    assert (planned["kv_dtype"], planned["max_batch"], planned["max_seq"]) == ("fp8_e4m3", 7, 4096)
    halved = glm_json("plan", *FOUR_H200, *options[2:])
    assert planned["page_bytes"] * 2 == halved["page_bytes"]


def test_a_model_too_large_for_this_machine_says_how_to_plan_gpus():
    skip_where_a_gpu_is()
    said = "To plan for GPUs, specify the memory of each, e.g. --device-memory 141GB."
    arguments = ("plan", "glm-4.7-fp8", "--memory-limit", "1MB")
    assert glm(*arguments).stdout.rstrip().endswith(said)
    assert said not in glm(*arguments, *CPU).stdout


def test_a_context_that_does_not_fit_is_told_the_option_that_would():
    result = glm("plan", *FOUR_H200, "--max-batch", 1, "--num-pages", 32, "--max-seq", 202752)
    assert "a KV cache of 32 pages" in result.stdout
    assert result.stdout.rstrip().endswith("Use --num-pages 12672 or --max-seq 512.")
