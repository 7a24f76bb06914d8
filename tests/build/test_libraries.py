"""What the built libraries export, need, and say about the machine they were built on."""

import re
import subprocess

import pytest

from tests.build.checkouts import ROOT

DEVICES = ("build/libglm_cpu.so", "build/libglm_cuda_plan.so")
LIBRARIES = (*DEVICES, "build/engine.so", "build/debug/engine.so")
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def dynamic_entries(path, kind):
    return re.findall(rf"\({kind}\).*\[(.*)\]", output_of("readelf", "-d", str(path)))


def exported_names(path):
    lines = output_of("nm", "-D", "--defined-only", str(path)).splitlines()
    return {line.split()[-1] for line in lines}


@pytest.mark.parametrize("name", LIBRARIES)
def test_needs_the_system_only(built_copy, name):
    assert set(dynamic_entries(built_copy.path / name, "NEEDED")) <= SYSTEM


@pytest.mark.parametrize("name", LIBRARIES)
def test_run_path_is_relative_to_the_library(built_copy, name):
    (run_path,) = dynamic_entries(built_copy.path / name, "RUNPATH")
    folders = run_path.split(":")
    assert folders[0] == "$ORIGIN"
    assert all(folder.startswith("$ORIGIN") for folder in folders)


@pytest.mark.parametrize("name", LIBRARIES)
def test_names_no_folder_of_this_machine(built_copy, name):
    content = (built_copy.path / name).read_bytes()
    for folder in (ROOT, built_copy.path):
        assert str(folder).encode() not in content


@pytest.mark.parametrize("name", DEVICES)
def test_device_library_exports_one_name(built_copy, name):
    assert exported_names(built_copy.path / name) == {"glm_backend_open"}


def test_debug_engine_exports_what_release_does_and_more(built_copy):
    release = exported_names(built_copy.path / "build/engine.so")
    debug = exported_names(built_copy.path / "build/debug/engine.so")
    assert {"init_engine", "free_engine", "engine_poll"} <= release
    assert release <= debug
