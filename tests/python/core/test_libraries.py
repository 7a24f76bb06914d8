"""Where engine.so is looked for, and what is said when it is not usable."""

import os
import subprocess

import pytest

from glm_engine.core import abi, layout, libraries
from glm_engine.core.errors import EngineLibraryError


def test_variable_wins(monkeypatch, tmp_path):
    path = tmp_path / "engine.so"
    path.write_bytes(b"")
    monkeypatch.setenv(libraries.VARIABLE, str(path))
    found = libraries.find_engine_library()
    assert (found.path, found.how) == (path.resolve(), "named by GLM_ENGINE_LIBRARY")


def test_variable_that_names_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv(libraries.VARIABLE, str(tmp_path / "absent.so"))
    with pytest.raises(EngineLibraryError, match=r"GLM_ENGINE_LIBRARY names .*absent\.so"):
        libraries.find_engine_library()


def test_without_the_variable_the_layout_says_where(monkeypatch, tmp_path):
    monkeypatch.delenv(libraries.VARIABLE, raising=False)
    monkeypatch.setattr(layout, "LIBRARIES", tmp_path)
    with pytest.raises(EngineLibraryError, match="build it with `scons`"):
        libraries.find_engine_library()
    (tmp_path / "engine.so").write_bytes(b"")
    found = libraries.find_engine_library()
    assert (found.path, found.how) == (tmp_path / "engine.so", "built here")


def test_file_that_is_no_library(monkeypatch, tmp_path):
    path = tmp_path / "engine.so"
    path.write_bytes(b"text")
    monkeypatch.setenv(libraries.VARIABLE, str(path))
    with pytest.raises(EngineLibraryError, match=r"cannot load .*engine\.so"):
        libraries.load_engine_library()


def test_library_without_the_functions():
    with pytest.raises(EngineLibraryError, match="engine_default_options"):
        libraries.load("libc.so.6")


def test_library_of_another_version(tmp_path):
    source = "".join(
        f"void {name}(unsigned *size) {{ *size = 8; }}\n"
        if name.startswith("engine_default")
        else f"void {name}(void) {{}}\n"
        for name in abi.FUNCTIONS
    )
    (tmp_path / "other.c").write_text(source)
    compiler = os.environ.get("CC") or "cc"
    command = [compiler, "-w", "-shared", "-fPIC", "other.c", "-o", "other.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.raises(EngineLibraryError, match="engine_options has 8 bytes, but this package's"):
        libraries.load(tmp_path / "other.so")


def test_backend_beside_or_above(monkeypatch, tmp_path):
    folder = tmp_path / "debug"
    folder.mkdir()
    (folder / "engine.so").write_bytes(b"")
    monkeypatch.setenv(libraries.VARIABLE, str(folder / "engine.so"))
    assert libraries.find_backend_library("cpu") is None
    (tmp_path / "libglm_cpu.so").write_bytes(b"")
    assert libraries.find_backend_library("cpu").how == "one folder up"
    (folder / "libglm_cpu.so").write_bytes(b"")
    assert libraries.find_backend_library("cpu").how == "beside engine.so"
