"""`glm doctor`: what it looks for, and what it finds after a build."""

import tomllib

import pytest
from packaging.requirements import Requirement

from glm_engine.core import diagnosis
from glm_engine.core.diagnosis import NVIDIA_LIBRARIES, PACKAGES, TOOLS, tool
from tests.python.commands.running import ROOT, glm, glm_json


def test_doctor_looks_for_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(PACKAGES) == [Requirement(one).name for one in project["dependencies"]]


@pytest.mark.parametrize("row", TOOLS, ids=[name for name, *_ in TOOLS])
def test_doctor_obeys_the_variables_that_the_build_obeys(row, monkeypatch):
    name = row[0]
    for variable in ("CC", "CXX", "FUTHARK", "TERRA", "NVCC", "SCONS"):
        monkeypatch.setenv(variable, "absent-tool")
    is_named = tool(*row).detail == "absent-tool not found"
    assert is_named == (name in ("cc", "c++"))


def test_a_checkout_shows_what_is_for_development_under_a_heading_of_its_own():
    shown = glm("doctor").stdout
    to_run, to_develop = shown.split("To develop")
    assert to_run.startswith("To run")
    names = [line.split()[0] for line in to_develop.splitlines()[1:] if line.strip()]
    development = [*(name for name, *_ in (*TOOLS, *NVIDIA_LIBRARIES))]
    assert [name for name in names if name in development] == development
    assert not {line.split()[0] for line in to_run.splitlines() if line} & set(development)
    assert shown.splitlines()[-1] == "Everything needed to run is here."


def test_a_wheel_leaves_out_what_is_for_development(monkeypatch):
    monkeypatch.setattr(diagnosis.layout, "IS_WHEEL", True)
    findings = diagnosis.diagnose()
    assert not [one.name for one in findings if one.for_development]
    assert {"engine.so", "libglm_cpu.so", "capitals"} <= {one.name for one in findings}


def test_doctor_finds_what_was_built():
    report = glm_json("doctor")
    assert report["missing"] == []
    states = {one["name"]: one["state"] for one in report["findings"]}
    assert {states[name] for name in PACKAGES} == {"found"}
    for name in ("engine.so", "libglm_cpu.so", "libglm_cuda_plan.so"):
        assert states[name] == "found"
