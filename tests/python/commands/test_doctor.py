"""`glm doctor`: what it looks for, and what it finds after a build."""

import tomllib

import pytest
from packaging.requirements import Requirement

from glm_engine.diagnosis import PACKAGES, TOOLS, tool
from tests.python.commands.running import ROOT, glm_json


def test_doctor_looks_for_every_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert list(PACKAGES) == [Requirement(one).name for one in project["dependencies"]]


@pytest.mark.parametrize("row", TOOLS, ids=[name for name, *_ in TOOLS])
def test_doctor_obeys_the_variables_that_the_build_obeys(row, monkeypatch):
    name = row[0]
    for variable in ("CC", "CXX", "FUTHARK", "TERRA", "NVCC", "SCONS"):
        monkeypatch.setenv(variable, "absent-tool")
    is_named = tool(*row).detail == "absent-tool is not there"
    assert is_named == (name in ("cc", "c++"))


def test_doctor_finds_what_was_built():
    report = glm_json("doctor")
    assert report["missing"] == []
    states = {one["name"]: one["state"] for one in report["findings"]}
    assert {states[name] for name in PACKAGES} == {"found"}
    for name in ("engine.so", "libglm_cpu.so", "libglm_cuda_plan.so"):
        assert states[name] == "found"
