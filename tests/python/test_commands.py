"""The commands of glm on the built engine and the capitals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from glm_engine.options import CAPITALS
from tools.checkpoint.random_model import small_config, write_random_model

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "data" / "configs"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
CPU = ["--device", "cpu"]
QUESTION = "The capital of France is"


def glm(*arguments, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "glm_engine", *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
    )


def glm_json(*arguments, code=0, stdin=""):
    result = glm(*arguments, "--json", stdin=stdin)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


def refused(*arguments, code=2):
    """Run a command that must fail, and return its one line."""
    result = glm(*arguments)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("glm: ")
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    write_random_model(folder, small_config(), seed=3)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((CAPITALS / name).read_bytes())
    return folder


def test_smoke_says_paris_and_its_figures():
    result = glm("smoke", *CPU)
    assert result.returncode == 0, result.stderr
    lines = dict(re.split(r" {2,}", line, maxsplit=1) for line in result.stdout.splitlines())
    assert lines["prompt"] == QUESTION
    assert "Paris" in lines["completion"]
    assert "cpu" in lines["device"].lower()
    assert lines["load"].endswith(" s")
    assert lines["prefill"].endswith(" tokens/s")
    assert lines["decode"].endswith(" tokens/s")
    assert lines["passed"] == "yes"


def test_smoke_as_json_over_ranks():
    report = glm_json("smoke", *CPU, "--world-size", 2)
    assert report["passed"] is True
    assert report["world_size"] == 2
    assert report["decode_tokens_per_second"] > 0


def test_generate_streams_what_json_reports():
    report = glm_json("generate", QUESTION, *CPU, "--max-tokens", 12)
    streamed = glm("generate", QUESTION, *CPU, "--max-tokens", 12, "--stats")
    assert streamed.stdout == report["completion"] + "\n"
    assert report["completion"].startswith(" Paris")
    assert report["finish_reason"] == "stop_token"
    assert f"{report['prompt_tokens']} prompt tokens at " in streamed.stderr


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_generate_reads_standard_input(arguments):
    result = glm("generate", *arguments, *CPU, stdin=QUESTION + "\n")
    assert result.stdout.startswith(" Paris")


def test_generate_chat():
    question = "What is the capital of France?"
    assert "Paris" in glm("generate", question, *CPU, "--chat").stdout


def test_generate_stops_before_a_text():
    report = glm_json("generate", QUESTION, *CPU, "--stop", "ris")
    assert report["completion"] == " Pa"
    assert report["finish_reason"] == "stop_text"


def test_generate_respects_lengths():
    report = glm_json("generate", QUESTION, *CPU, "--max-tokens", 5, "--ignore-eos")
    assert len(report["token_ids"]) == report["completion_tokens"] == 5
    assert report["finish_reason"] == "length"


def test_same_seed_same_text():
    sampled = ["generate", QUESTION, *CPU, "--temperature", "1.5", "--ignore-eos"]
    sampled += ["--max-tokens", "24", "--seed"]
    texts = [glm(*sampled, seed).stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_bias_and_logprobs_reach_the_engine():
    first = glm_json("generate", QUESTION, *CPU, "--max-tokens", 1, "--logprobs", 3)
    chosen = first["token_ids"][0]
    [row] = first["logprobs"]
    assert row["token_id"] == chosen
    assert [one["token_id"] for one in row["top"]][0] == chosen
    assert row["logprob"] == pytest.approx(row["top"][0]["logprob"])
    biased = glm_json(
        "generate", QUESTION, *CPU, "--max-tokens", 1, "--logit-bias", f"{chosen}=-100"
    )
    assert biased["token_ids"][0] != chosen


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "-1"], ["temperature"]),
        (["--temperature", "nan"], ["temperature"]),
        (["--top-p", "0"], ["top_p"]),
        (["--top-p", "nan"], ["top_p"]),
        (["--top-k", "-1"], ["top_k"]),
        (["--min-p", "2"], ["min_p"]),
        (["--repetition-penalty", "0"], ["repetition_penalty"]),
        (["--max-tokens", "0"], ["max_tokens"]),
        (["--max-tokens", "-5"], ["max_tokens"]),
        (["--logit-bias", "999999=1"], ["999999"]),
        (["--logprobs", "21"], ["logprobs"]),
        (["--world-size", "3"], ["3"]),
        (["--world-size", "0"], ["world_size"]),
        (["--max-batch", "0"], ["max_batch"]),
        (["--page-size", "-1"], ["page_size"]),
        (["--max-seq", "0"], ["max_seq"]),
    ],
)
def test_bad_options_are_named(arguments, words):
    line = refused("generate", QUESTION, *CPU, *arguments)
    assert all(word in line for word in words), line


def test_empty_prompt():
    assert "prompt" in refused("generate", "", *CPU)


def test_prompt_too_long():
    assert "prompt" in refused("generate", QUESTION * 50, *CPU, "--max-seq", 64)


def test_pool_too_small_for_one_request():
    result = glm("generate", QUESTION * 4, *CPU, "--num-pages", 1)
    assert result.returncode in (2, 3)
    assert "page" in result.stderr


def test_cuda_without_a_gpu_is_refused():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA driver")
    result = glm("smoke", "--device", "cuda")
    assert result.returncode in (2, 3)
    assert result.stderr.startswith("glm: ")
    assert "cuda" in result.stderr


def test_smoke_fails_on_a_model_that_does_not_know(random_model):
    report = glm_json("smoke", *CPU, "--model", random_model, code=1)
    assert report["passed"] is False


def test_interrupt_ends_a_generation_with_130():
    process = subprocess.Popen(
        [sys.executable, "-m", "glm_engine", "generate", QUESTION, *CPU]
        + ["--ignore-eos", "--max-tokens", "3500"],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.read(1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "glm: interrupted"
    assert time.monotonic() - began < 10


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


GLM_4_7 = {
    "num_parameters": 352_797_829_024,
    "checkpoint_bytes": 354_902_000_000,
    "kv_bytes_per_token_bf16": 368 * 1024,
}


@pytest.mark.parametrize("command", ["inspect", "plan"])
def test_the_published_configuration_alone(command):
    arguments = ["--summary"] if command == "inspect" else ["--world-size", "8"]
    if command == "plan":
        arguments += ["--memory-limit", "1TB", "--max-batch", "1"]
    found = glm_json(command, CONFIGS / "glm-4.7-fp8.json", *arguments)
    assert found["num_parameters"] == GLM_4_7["num_parameters"]
    assert found["checkpoint_bytes"] == pytest.approx(GLM_4_7["checkpoint_bytes"], rel=1e-4)


def test_plan_of_the_published_configuration():
    arguments = ["--world-size", 8, "--memory-limit", "1TB", "--max-batch", 1]
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
    assert printed.rstrip().endswith("fits")


def test_plan_refuses_with_the_reason():
    planned = glm_json("plan", CONFIGS / "glm-4.7-fp8.json", "--memory-limit", "80GB", code=1)
    assert planned["fits"] is False
    assert planned["reason"]
    printed = glm("plan", CONFIGS / "glm-4.7-fp8.json", "--memory-limit", "80GB")
    assert printed.returncode == 1
    assert "does not fit: " in printed.stdout


@pytest.mark.parametrize("layout", ["tensor_parallel", "expert_parallel"])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_plan_of_the_capitals(world_size, layout):
    planned = glm_json("plan", "--world-size", world_size, "--expert-layout", layout)
    assert planned["fits"] is True
    assert planned["expert_layout"] == layout
    assert len(planned["ranks"]) == world_size
    for rank in planned["ranks"]:
        parts = ("weight_bytes", "kv_bytes", "workspace_bytes")
        assert rank["total_bytes"] >= sum(rank[part] for part in parts)


def test_plan_of_heads_that_ranks_cannot_split():
    assert "3" in refused("plan", CONFIGS / "glm-4.7-fp8.json", "--world-size", 3)


def test_plan_of_a_configuration_that_is_none(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("{")
    assert str(path) in refused("plan", path)


def test_evaluate_answers_all_at_once():
    report = glm_json("evaluate", *CPU)
    assert report["passed"] is True
    assert report["accuracy"] >= 0.95
    assert report["num_asked"] == len(json.loads((CAPITALS / "countries.json").read_text()))
    assert report["num_steps"] < report["generated_tokens"] / 4


def test_evaluate_fails_below_the_threshold(random_model):
    facts = CAPITALS / "countries.json"
    result = glm("evaluate", *CPU, "--model", random_model, "--facts", facts, "--limit", 3)
    assert result.returncode == 1
    assert re.search(r"right +0 of 3", result.stdout)


def test_doctor_finds_what_was_built():
    report = glm_json("doctor")
    assert report["missing"] == []
    states = {one["name"]: one["state"] for one in report["findings"]}
    assert states["engine.so"] == states["libglm_cpu.so"] == "found"
