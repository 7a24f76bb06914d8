"""The CUDA side: headers are looked for, their absence is told, the host code compiles."""

import shutil

import nvcc
import pytest


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
    printed = built_small.scons("futhark_cuda", status=None)
    if "CUDA headers not found" in printed:
        pytest.skip(printed[printed.index("CUDA headers not found") :].splitlines()[0])
    assert (built_small.path / "build/libglm_futhark_cuda.so").is_file()
    assert built_small.would_build("futhark_cuda") == set()


@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not on the PATH")
def test_device_code_is_compiled_for_the_named_architecture(built_small):
    script = built_small.path / "native/SConscript"
    text = script.read_text()
    built_small.write("native/kernels/scale.cu", "__global__ void scale(float *x) { *x *= 2; }\n")
    script.write_text(text + '\nenv.Alias("kernel", env.DeviceObjects("kernels/scale.cu"))\n')
    try:
        built_small.scons("kernel")
    finally:
        script.write_text(text)
        shutil.rmtree(built_small.path / "native/kernels")
    code = (built_small.path / "build/obj/native/kernels/scale.cu.o").read_bytes()
    assert b"sm_90a" in code
