"""`glm deploy`: what it refuses, and in which line."""

import json
import subprocess
import sys

import pytest

from glm_engine.cli import command_line
from glm_engine.core.errors import BadInputError
from glm_engine.deploy import deployment
from glm_engine.deploy.gpus import dollars_per_hour, parse_gpu
from glm_engine.deploy.job import VARIABLE, Job, job_of_environment
from tests.python.deploy.running import CAPITALS, ENVIRONMENT, wheel_in


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smoke", "--gpu", "A100:8"], "--gpu: expected one of B200, H200, H100"),
        (["smoke", "--gpu", "B200:3"], "got 'B200:3'"),
        (["smoke", "--gpu", "b200:8"], "got 'b200:8'"),
        (["smoke", "--gpu", ""], "--gpu: expected a value, got an empty string"),
        (["smoke", "--local", "--gpu", "H100:1"], "--gpu cannot be used with --local"),
        (["smoke", "--local", "--dry-run"], "--dry-run cannot be used with --local"),
        (["smoke", "--device", "cpu"], "--device needs --local"),
        (["serve", "--port", "80"], "--port needs --local"),
        (
            ["smoke", "--model", str(CAPITALS)],
            "--model: expected the ORG/NAME of a model on the hub",
        ),
        (["smoke", "--model", "no-owner"], "--model: expected the ORG/NAME of a model on the hub"),
        (["smoke", "--wheel", "absent.whl"], "expected one wheel, found absent.whl"),
        (
            ["smoke", "--ship", "source", "--wheel", "a.whl"],
            "--wheel cannot be used",
        ),
        (
            ["serve", "--min-replicas", "2"],
            "expected no more than --max-replicas (1)",
        ),
        (["serve", "--scaledown-window", "1"], "expected 2 to 3600, got 1"),
        (["benchmark", "--local", "--batch", "1,x"], "expected a whole number, got 'x'"),
        (["nope"], "No such command 'nope'"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert command_line.main(["deploy", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("glm: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_a_wheel_without_the_cuda_device_is_refused(tmp_path, capsys):
    wheel = tmp_path / "glm_engine-0+cpu-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    assert command_line.main(["deploy", "smoke", "--wheel", str(wheel)]) == 2
    assert "expected a wheel with CUDA support" in capsys.readouterr().err


def test_without_modals_package_a_line_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "modal", None)
    wheel = str(wheel_in(tmp_path))
    for arguments in (["smoke"], ["smoke", "--dry-run"], ["serve"]):
        assert command_line.main(["deploy", *arguments, "--wheel", wheel]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("glm: the modal package is not installed")
        assert printed.err.count("\n") == 1
    assert command_line.main(["deploy", "logs"]) == 1


def test_a_plan_from_an_installed_wheel_needs_neither_a_checkout_nor_modal(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "modal", None)
    monkeypatch.setattr(deployment, "IS_WHEEL", True)
    assert command_line.main(["deploy", "plan", "--dry-run", "--gpu", "H200:4"]) == 0
    printed = capsys.readouterr().out
    assert "  serve: H200:4, 16 cores, 64 GiB, $19.42 per hour\n" in printed
    assert "about 88.7 GB on each of 4 H200" in printed
    assert "requires the modal package: " in printed.splitlines()[-1]
    assert command_line.main(["deploy", "plan", "--dry-run", "--gpu", "H200:4", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in planned["containers"]][-2:] == ["benchmark", "serve"]
    assert all(note in printed for note in planned["notes"])


def test_an_installed_glm_names_the_extra_that_brings_modal():
    code = (
        "from glm_engine.core import layout; layout.IS_WHEEL = True\n"
        "from glm_engine.deploy.on_modal import WAY_TO_MODAL; print(WAY_TO_MODAL)"
    )
    run = [sys.executable, "-c", code]
    printed = subprocess.run(run, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert printed.stdout == 'install it with `pip install "glm-engine[modal]"`\n'


def test_what_a_container_costs():
    per_second = 8 * 0.001736 + 16 * 0.0000131 + 64 * 0.00000222
    assert dollars_per_hour(parse_gpu("B200:8"), 16, 65536) == pytest.approx(3600 * per_second)
    assert dollars_per_hour(None, 2, 1024) == pytest.approx(3600 * (0.0000262 + 0.00000222))


def test_what_has_run_is_said():
    has_run = "The engine has run on H100:2, H200:1, H200:2 and H200:4"
    assert parse_gpu("B200:8").note().startswith(f"{has_run}, never on B200:8. ")
    assert parse_gpu("H200").note().startswith(f"{has_run}. ")


def test_the_engine_chooses_how_many_gpus_unless_it_is_told():
    assert Job("capitals", device="auto").engine_arguments() == (
        *("--device", "auto"),
        *("--world-size", "auto"),
    )
    assert Job("capitals", world_size=4).engine_arguments()[2:] == ("--world-size", "4")


def test_a_job_comes_through_the_environment():
    job = Job("zai-org/GLM-4.7-FP8", revision="v1", world_size=8)
    assert job_of_environment(job.environment()) == job
    for stated in ({}, {VARIABLE: "{"}, {VARIABLE: '{"nope": 1}'}, {VARIABLE: "[]"}):
        with pytest.raises(BadInputError, match=VARIABLE):
            job_of_environment(stated)
