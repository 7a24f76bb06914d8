"""`glm smoke` on the built engine."""

import re
import shutil

import pytest

from glm_engine.core.libraries import find_backend_library, find_engine_library
from tests.engine.failing_device import FOLDER
from tests.nvidia_driver import skip_where_a_gpu_is
from tests.python.commands.running import CPU, ENVIRONMENT, QUESTION, glm, glm_json, refused


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
    report = glm_json("smoke", *CPU, "--world-size", 2, "--timed-tokens", 2)
    assert report["passed"] is True
    assert report["world_size"] == 2
    assert report["decode_tokens_per_second"] > 0


@pytest.fixture
def no_gpu():
    skip_where_a_gpu_is()
    if find_backend_library("cuda") is None:
        pytest.skip("libglm_cuda.so is not built: scons cuda makes it (tools/develop --with cuda)")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "arguments",
    [["smoke"], ["evaluate"], ["bench"], ["plan"], ["generate", "Hello"]],
    ids=lambda arguments: arguments[0],
)
def test_cuda_without_a_driver_is_refused_and_nothing_falls_back(arguments):
    message = refused(*arguments, "--device", "cuda", code=3)
    line = "glm: device cuda: no NVIDIA driver found; install one, or use --device cpu"
    if arguments == ["plan"]:
        line += ". To plan for GPUs, specify the memory of each, e.g. --device-memory 141GB."
    assert message == f"{line}\n"


@pytest.mark.parametrize(
    ("copied", "missing"),
    [((), "libglm_cuda.so"), (("libglm_cuda.so",), "libcudawrap.so")],
)
def test_cuda_without_its_libraries_is_refused(tmp_path, monkeypatch, copied, missing):
    built = find_engine_library().path.parent
    for name in ("engine.so", "libglm_cpu.so", *copied):
        if not (built / name).exists():
            pytest.skip(f"{name} is not built: scons cuda makes it (tools/develop --with cuda)")
        shutil.copy2(built / name, tmp_path)
    monkeypatch.setitem(ENVIRONMENT, "GLM_ENGINE_LIBRARY", str(tmp_path / "engine.so"))
    message = refused("smoke", "--device", "cuda", code=3)
    assert f"cannot open the library for device cuda: {missing}: cannot open" in message
    assert message.endswith(
        "; in a source checkout, build it with `tools/develop --with cuda scons engine cuda`\n"
    )


def test_a_device_library_from_elsewhere_does_not_answer_for_an_absent_one(tmp_path, monkeypatch):
    """What a process has loaded from another folder, here beforehand, stays what it is."""
    shutil.copy2(find_engine_library().path, tmp_path)
    monkeypatch.setitem(ENVIRONMENT, "GLM_ENGINE_LIBRARY", str(tmp_path / "engine.so"))
    monkeypatch.setitem(ENVIRONMENT, "LD_PRELOAD", str(FOLDER / "libglm_cpu.so"))
    message = refused("smoke", *CPU, code=3)
    assert "cannot open the library for device cpu: libglm_cpu.so: cannot open" in message


def test_smoke_fails_on_a_model_that_does_not_know(random_model):
    report = glm_json("smoke", *CPU, "--model", random_model, code=1)
    assert report["passed"] is False
