"""Inputs of every folder, changed by one byte, ask for what depends on them and nothing else."""

import os
import re
import shutil
import subprocess

import pytest

from tests import shapes
from tests.build.checkouts import source_files

INCLUDE_FLAGS = ["-Inative/include", "-I.", "-Ibuild", "-Inative/backends/cpu"]
ENGINE = {
    f"build/{name}"
    for name in (
        "lowered/x86-64-v3/release.ll",
        "lowered/x86-64-v3/debug.ll",
        "engine.o",
        "engine.so",
        "debug/engine.o",
        "debug/engine.so",
    )
}
OBJECTS = {name for name in ENGINE if name.endswith((".o", ".so"))}
LIBRARY, PLANS = "build/libglm_cpu.so", "build/libglm_cuda_plan.so"
SOURCES = {
    LIBRARY: r"native/(backends/(cpu|adapter)|base|collectives/threads|portable)/",
    PLANS: r"native/(backends/cuda/plan(/library)?|base|kernels(/shapes)?|portable)/",
}
KERNELS = "build/kernels_cpu.c"
KERNELS_OBJECT = "build/obj/build/kernels_cpu.c.o"
FOLDERS = ("futhark/", "native/", "terra/")
SUFFIXES = (".fut", ".c", ".cpp", ".h", ".hpp", ".t", ".ll", "manifest.json")
INPUTS = [name for name in source_files() if name.startswith(FOLDERS) and name.endswith(SUFFIXES)]


def drawn(count):
    """At most so many inputs of each folder and ending, others with each GLM_TEST_SEED."""
    kinds, chance = {}, shapes.generator("inputs that change")
    for name in INPUTS:
        folder, ending = name.split("/")[:-1][:2], name.rpartition(".")[2]
        kinds.setdefault((*folder, ending), []).append(name)
    return [name for names in kinds.values() for name in chance.permutation(names)[:count].tolist()]


def native_sources(library):
    """The C and C++ sources of one library."""
    source = re.compile(SOURCES[library] + r"[^/]+\.(c|cpp)")
    return [name for name in INPUTS if source.fullmatch(name)]


@pytest.fixture(scope="module")
def included(built_copy):
    """The files that the compiler itself says each native source reads."""
    found = {}
    for source in {*native_sources(LIBRARY), *native_sources(PLANS)}:
        compiler = "g++" if source.endswith(".cpp") else "gcc"
        standard = "-std=c++20" if source.endswith(".cpp") else "-std=gnu11"
        command = [compiler, standard, "-MM", *INCLUDE_FLAGS, source]
        done = subprocess.run(
            command, cwd=built_copy.path, capture_output=True, text=True, check=True
        )
        found[source] = set(re.sub(r"^.*?:|\\\n", " ", done.stdout).split())
    return found


def expected(name, included):
    """What must be built again after `name` changed, from the accounts of the tools themselves."""
    if name.startswith("terra/"):
        return ENGINE
    if name.startswith("futhark/"):
        readers = dependent_objects(included, "build/kernels_cpu.h")
        return {KERNELS, KERNELS_OBJECT, LIBRARY} | readers
    objects = dependent_objects(included, name)
    built = objects | {library for library in SOURCES if objects & objects_of(library)}
    is_lowered = name.startswith("native/include/glm/") and not name.endswith("wrap.h")
    return built | (ENGINE if is_lowered else set())


def objects_of(library):
    """Objects that a library links."""
    return {f"build/obj/{source}.o" for source in native_sources(library)}


def dependent_objects(included, name):
    """Objects of the sources that read `name`."""
    return {f"build/obj/{source}.o" for source, read in included.items() if name in read}


def test_copy_is_up_to_date(built_copy):
    assert built_copy.would_build() == set()


@pytest.mark.parametrize("name", drawn(1))
def test_one_byte(built_copy, included, name):
    before = built_copy.change(name)
    try:
        assert built_copy.would_build() == expected(name, included)
    finally:
        (built_copy.path / name).write_bytes(before)


def test_every_kind_of_input_is_there():
    kinds = {name.rpartition(".")[2] for name in INPUTS}
    assert {"fut", "h", "t", "ll", "json"} <= kinds
    assert all(native_sources(library) for library in SOURCES)


def test_files_that_are_no_inputs(built_copy):
    built_copy.write("native/README.md", "text\n")
    built_copy.write("python/glm_engine/added.py", "text = 1\n")
    assert built_copy.would_build() == set()


@pytest.mark.parametrize(
    ("script", "before", "after", "built"),
    [
        ("native.py", '"-O3"', '"-O2"', {KERNELS_OBJECT, LIBRARY}),
        ("native.py", '"-Wl,-z,relro"', '"-Wl,-z,now"', {LIBRARY, "build/engine.so"}),
        ("futhark.py", '"--library"', '"--library", "--safe"', {KERNELS, KERNELS_OBJECT, LIBRARY}),
        ("terra.py", '"x86-64-v3"}', '"x86-64-v4"}', {"build/engine.o", "build/engine.so"}),
        ("llvmlite_object.py", 'reloc="pic"', 'reloc="static"', OBJECTS),
    ],
)
def test_flags_are_inputs(built_small, script, before, after, built):
    path = built_small.path / "tools/scons" / script
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    try:
        assert built <= built_small.would_build()
    finally:
        path.write_text(text)
    assert built_small.would_build() == set()


def write_other_version(folder, name):
    """A command that states another version and otherwise is the tool of that name."""
    real = shutil.which(name)
    script = folder / name
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = "--version" ]; then echo "{name} 0.0.0"; else exec "{real}" "$@"; fi\n'
    )
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("tool", "built"),
    [
        ("gcc", {KERNELS_OBJECT, LIBRARY, "build/engine.so", "build/debug/engine.so"}),
    ],
)
def test_tool_versions_are_inputs(built_small, tmp_path, monkeypatch, tool, built):
    write_other_version(tmp_path, tool)
    path = f"{tmp_path}:{os.environ['PATH']}"
    monkeypatch.setitem(built_small.variables, "PATH", path)
    assert built <= built_small.would_build()


def test_llvmlite_version_is_an_input(built_small, tmp_path, monkeypatch):
    record = tmp_path / "llvmlite-0.0.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: llvmlite\nVersion: 0.0.0\n")
    monkeypatch.setitem(built_small.variables, "PYTHONPATH", str(tmp_path))
    assert built_small.would_build() == OBJECTS


def test_missing_source_is_an_error(built_small):
    path = built_small.path / "native/collectives/threads/sum.c"
    text = path.read_text()
    path.unlink()
    try:
        printed = built_small.scons(status=2)
    finally:
        path.write_text(text)
    assert "native/collectives/threads/*.c" in printed
    assert "not found" in printed
