"""`glm deploy`: what it refuses, and in which line."""

import sys

import pytest

from glm_engine import cli
from glm_engine.deploy.gpus import dollars_per_hour, parse_gpu
from glm_engine.deploy.job import VARIABLE, Job, job_of_environment
from glm_engine.errors import BadInputError
from tests.python.deploy.running import CAPITALS, wheel_in


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["smoke", "--gpu", "A100:8"], "--gpu: expected B200, H200, H100"),
        (["smoke", "--gpu", "B200:3"], "found 'B200:3'"),
        (["smoke", "--gpu", "b200:8"], "found 'b200:8'"),
        (["smoke", "--gpu", ""], "--gpu: expected a value, got an empty string"),
        (["smoke", "--local", "--gpu", "H100:1"], "--gpu: is about Modal"),
        (["smoke", "--local", "--dry-run"], "--dry-run: is about Modal"),
        (["smoke", "--device", "cpu"], "--device: is about this machine; it needs --local"),
        (["serve", "--port", "80"], "--port: is about this machine; it needs --local"),
        (["smoke", "--model", str(CAPITALS)], "--model: expected a name of the hub"),
        (["smoke", "--model", "no-owner"], "--model: expected a name of the hub"),
        (["smoke", "--wheel", "absent.whl"], "expected one wheel, found absent.whl"),
        (["smoke", "--ship", "source", "--wheel", "a.whl"], "--wheel: the sources go along"),
        (["serve", "--min-replicas", "2"], "--min-replicas: expected at most --max-replicas, 1"),
        (["serve", "--scaledown-window", "1"], "expected 2 to 3600, got 1"),
        (["benchmark", "--local", "--batch", "1,x"], "expected a whole number, got 'x'"),
        (["nope"], "No such command 'nope'"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert cli.main(["deploy", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("glm: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_a_wheel_without_the_cuda_device_is_refused(tmp_path, capsys):
    wheel = tmp_path / "glm_engine-0+cpu-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    assert cli.main(["deploy", "smoke", "--wheel", str(wheel)]) == 2
    assert "expected a wheel with the CUDA device" in capsys.readouterr().err


def test_without_modals_package_a_line_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "modal", None)
    wheel = str(wheel_in(tmp_path))
    for arguments in (["smoke"], ["smoke", "--dry-run"], ["serve"]):
        assert cli.main(["deploy", *arguments, "--wheel", wheel]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("glm: the package modal is not installed")
        assert printed.err.count("\n") == 1
    assert cli.main(["deploy", "logs"]) == 1


def test_what_a_container_costs():
    per_second = 8 * 0.001736 + 16 * 0.0000131 + 64 * 0.00000222
    assert dollars_per_hour(parse_gpu("B200:8"), 16, 65536) == pytest.approx(3600 * per_second)
    assert dollars_per_hour(None, 2, 1024) == pytest.approx(3600 * (0.0000262 + 0.00000222))


def test_what_has_run_is_said():
    has_run = "the engine has run on H100:2, H200:1, H200:2 and H200:4"
    assert parse_gpu("B200:8").note().startswith(f"{has_run}, never on B200:8; ")
    assert parse_gpu("H200").note().startswith(f"{has_run}; ")


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
