"""`scons reproduce` finds out when two clones differ; `.ci/run` runs it on this repository."""

import os
import subprocess
import threading
from pathlib import Path

import pytest
import reproduce

from tests.build.checkouts import ROOT, small_checkout


def commit(path):
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=path, check=True)


def without_nvcc():
    """A PATH on which nvcc is not: the small checkout has no kernels."""
    folders = os.environ["PATH"].split(os.pathsep)
    return {"PATH": os.pathsep.join(each for each in folders if not Path(each, "nvcc").exists())}


def test_a_path_in_a_library_is_found(tmp_path):
    checkout = small_checkout(tmp_path, without_nvcc())
    script = "native/SConscript"
    text = (tmp_path / script).read_text()
    leak = "env.Append(NATIVE_FLAGS=[f\"-DGLM_ANSWER={len(env.Dir('#').abspath)}\"])\n"
    checkout.write(script, text.replace("\ncpu_sources", f"\n{leak}cpu_sources"))
    checkout.write("native/include/glm/answer.h", "#pragma once\n")
    checkout.record_lowerings()
    commit(tmp_path)
    printed = checkout.scons("reproduce", status=2)
    assert "two builds of one commit differ" in printed
    assert any(
        line.startswith("DIFFERENT") and line.endswith("build/libglm_cpu.so")
        for line in printed.splitlines()
    )


def test_of_each_setting_of_nvcc_the_smallest_file_is_built_twice(tmp_path):
    checkout = small_checkout(tmp_path)
    for folder in ("native/backends/cuda", "native/collectives/peer"):
        checkout.write_function(f"{folder}/main.c", folder)
    sizes = {"sm90a_a": 9, "sm90a_b": 8, "sm100a_a": 9, "sm100a_products": 1, "a": 2, "b": 3}
    for name, size in sizes.items():
        checkout.write(f"native/kernels/blackwell/{name}.cu", "\n" * size)
    wanted = checkout.would_build("cuda_samples")
    built = {Path(name).name for name in wanted if name.endswith(reproduce.DEVICE_OBJECT)}
    assert built == {"sm90a_b.cu.o", "sm100a_a.cu.o", "a.cu.o"}


def test_device_code_may_be_built_once_where_other_device_code_is_the_same(capsys):
    first = {"a.cu.o": "1", "b.cu.o": "2", reproduce.CUDA_LIBRARY: "3", "a.so": "4"}
    second = {"a.cu.o": "1", "a.so": "4"}
    reproduce.compare(first, second)
    printed = capsys.readouterr().out.splitlines()
    assert f"built once 3 {reproduce.CUDA_LIBRARY}" in printed
    assert "same       4 a.so" in printed
    for lost, message in (
        ("a.cu.o", "the second clone compiled no device code"),
        ("a.so", "two builds of one commit differ"),
    ):
        with pytest.raises(reproduce.ReproductionError, match=message):
            reproduce.compare(first, {key: second[key] for key in second if key != lost})
    with pytest.raises(reproduce.ReproductionError, match="two builds of one commit differ"):
        reproduce.compare(first, {**second, "a.cu.o": "5"})


@pytest.mark.parametrize(
    ("first", "second"),
    [({"a.so": "1"}, {"a.so": "2"}), ({"a.so": "1"}, {}), ({}, {})],
)
def test_differences_and_nothing_built_are_errors(monkeypatch, tmp_path, first, second):
    answers = dict(zip(reproduce.CHECKOUTS, (first, second), strict=True))
    both = threading.Barrier(2, timeout=60)

    def build_clone(*arguments):
        both.wait()
        return answers[arguments[2].relative_to(tmp_path).as_posix()]

    monkeypatch.setattr(reproduce, "build_clone", build_clone)
    monkeypatch.setattr(reproduce, "root_folder", lambda _: ROOT)
    monkeypatch.setattr(reproduce, "clone_variables", lambda _: os.environ)
    monkeypatch.setattr(reproduce, "targets", lambda _: (["libraries"], ["libraries"]))
    monkeypatch.setattr(reproduce, "jobs_of_each", lambda _: (1, 1))
    message = "two builds of one commit differ" if first else "the clones built no library"
    with pytest.raises(reproduce.ReproductionError, match=message):
        reproduce.compare_clones(None, tmp_path)
