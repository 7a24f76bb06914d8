"""The CUDA side: headers are looked for, their absence is told, the host code compiles."""

import shutil

import nvcc
import pytest

from tests import groups
from tests.build.checkouts import small_checkout


def test_headers_are_found_in_the_first_folder_that_has_them(tmp_path):
    for folder, name in (("a", "cuda.h"), ("b", "cuda.h"), ("b", "nvrtc.h")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("#define CUDA_VERSION 12080\n")
    found = nvcc.found_headers([tmp_path / "a", tmp_path / "b"])
    assert found == {"cuda.h": tmp_path / "a/cuda.h", "nvrtc.h": tmp_path / "b/nvrtc.h"}
    assert nvcc.header_version(found).startswith("12080 ")


def test_missing_headers_are_named():
    problem = nvcc.cuda_problem({"CUDA_HEADERS": {"cuda.h": "somewhere"}})
    assert problem == "CUDA headers not found: cuda_runtime.h, nvrtc.h"


def test_no_header_has_no_version():
    assert nvcc.header_version({}) is None


def test_runtime_is_found_below_cuda_home_where_the_toolkit_has_none(tmp_path, monkeypatch):
    toolkit, home = tmp_path / "toolkit", tmp_path / "home"
    monkeypatch.setattr(nvcc, "toolkit_folder", lambda _: str(toolkit))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert nvcc.runtime_library(None) is None
    monkeypatch.setenv("CUDA_HOME", str(home))
    for folder in (home / "lib", toolkit / "lib64"):
        folder.mkdir(parents=True)
        (folder / nvcc.RUNTIME).touch()
        assert nvcc.runtime_library(None) == folder / nvcc.RUNTIME


def test_cutlass_is_found_below_its_home(tmp_path, monkeypatch):
    header = tmp_path / "include" / nvcc.CUTLASS_HEADER
    header.parent.mkdir(parents=True)
    header.write_text("#define CUTLASS_MAJOR 4\n")
    monkeypatch.setenv("CUTLASS_HOME", str(tmp_path))
    assert nvcc.cutlass_folder() == tmp_path / "include"
    assert len(nvcc.cutlass_version(tmp_path / "include")) == 64


def test_missing_cutlass_is_told_in_one_line(monkeypatch):
    monkeypatch.delenv("CUTLASS_HOME", raising=False)
    monkeypatch.setattr(nvcc.sys, "path", [])
    problem = nvcc.cutlass_problem({"CUTLASS_FOLDER": nvcc.cutlass_folder()})
    assert problem.startswith("CUTLASS headers not found: ")
    assert "\n" not in problem


def test_host_code_of_the_cuda_back_end_compiles(built_small):
    printed = built_small.scons("futhark", status=None)
    for missing in ("CUDA headers not found", "futhark is not on the PATH"):
        if missing in printed:
            pytest.skip(printed[printed.index(missing) :].splitlines()[0])
    assert (built_small.path / "build/libglm_futhark.so").is_file()
    assert built_small.would_build("futhark") == set()


needs_nvcc = groups.needs("nvcc")


def compiled_kernel(checkout, code):
    """The object of one .cu file, compiled by the project's own builder in this checkout."""
    script = checkout.path / "native/SConscript"
    text = script.read_text()
    checkout.write("native/kernels/scale.cu", code)
    script.write_text(text + '\nenv.Alias("kernel", env.DeviceObjects("kernels/scale.cu"))\n')
    try:
        checkout.scons("kernel", status=None)
    finally:
        script.write_text(text)
        (checkout.path / "native/kernels/scale.cu").unlink()
    made = checkout.path / "build/obj/native/kernels"
    assert not (made / "scale.cu.o.parts").exists()
    return (made / "scale.cu.o").read_bytes() if (made / "scale.cu.o").exists() else None


@needs_nvcc
def test_device_code_is_compiled_for_the_named_architecture(built_small):
    assert b"sm_90a" in compiled_kernel(built_small, "__global__ void scale(float *x) { *x *= 2; }")


@needs_nvcc
def test_device_code_that_does_not_compile_is_an_error(built_small):
    shutil.rmtree(built_small.path / "build/obj/native/kernels", ignore_errors=True)
    assert compiled_kernel(built_small, "__global__ void scale(float *x) { *x *= ; }") is None


@needs_nvcc
def test_hidden_device_code_has_the_same_bytes_in_any_folder(tmp_path):
    code = "namespace { __global__ void scale(float *x) { *x *= 2; } }\n"
    code += "void launch(float *x) { scale<<<1, 1>>>(x); }\n"
    folders = (tmp_path / "a", tmp_path / "another" / "place")
    first, second = (compiled_kernel(small_checkout(folder), code) for folder in folders)
    assert b"scale" in first
    assert first == second
