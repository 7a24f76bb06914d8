"""`glm smoke` on the built engine."""

import re
from pathlib import Path

import pytest

from tests.python.commands.running import CPU, QUESTION, glm, glm_json


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
