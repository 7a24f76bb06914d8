"""`scons check` runs every step and tells what became of each."""

import os
import shutil
import subprocess

import pytest
from check import STEPS, step_status, tracked_files

from tests.build.checkouts import ROOT, small_checkout

FAILED = "failed: exit status 1"
ABSENT = {"name": "absent", "command": ["no-such-tool"], "required": True}


class Environment(dict):
    """As much of an SCons environment as a step asks for."""

    def __init__(self, folder):
        super().__init__(ENV={"PATH": "/usr/bin:/bin"})
        self.abspath = str(folder)

    def Dir(self, name):
        assert name == "#"
        return self


@pytest.mark.parametrize(
    ("step", "result"),
    [
        (ABSENT, "failed: no-such-tool is not on the PATH"),
        (ABSENT | {"required": False}, "skipped: no-such-tool is not on the PATH"),
        (
            ABSENT | {"required": False, "brought_by": "tools/develop --with x"},
            "skipped: no-such-tool is not on the PATH: run with `tools/develop --with x`",
        ),
        ({"command": ["true"], "suffixes": (".nix",)}, "skipped: no file ends in .nix"),
        ({"command": ["true"], "suffixes": (".c",)}, "passed"),
        ({"command": ["false"]}, FAILED),
        ({"command": ["ls"], "suffixes": (".c",), "one_by_one": True}, "failed: b.c"),
    ],
)
def test_result_of_a_step(tmp_path, step, result):
    (tmp_path / "a.c").write_text("")
    assert step_status(Environment(tmp_path), step, ["a.c", "b.c"]) == result


def test_files_of_git_that_are_there(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("added.c", "gone.c", "new.c", "ignored.o"):
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("*.o\n")
    subprocess.run(["git", "add", "added.c", "gone.c"], cwd=tmp_path, check=True)
    (tmp_path / "gone.c").unlink()
    assert tracked_files(tmp_path) == [".gitignore", "added.c", "new.c"]


@pytest.mark.skipif(not shutil.which("mypy"), reason="mypy is not on the PATH")
def test_a_wrong_type_fails(tmp_path):
    for folder in ("python", "tools/scons"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "python/counts.py").write_text(
        "def size(text: str) -> int:\n    return len(text)\n"
    )
    counting = tmp_path / "tools/counting.py"
    [step] = [one for one in STEPS if one["name"] == "mypy"]
    environment = Environment(tmp_path)
    environment["ENV"]["PATH"] = os.environ["PATH"]
    wrong, untyped = "size(1)\n", "def count():\n    return 1\n"
    for text, result in (("size('a')\n", "passed"), (wrong, FAILED), (untyped, FAILED)):
        counting.write_text(f"from counts import size\n\n{text}")
        assert step_status(environment, step, []) == result


@pytest.mark.skipif(not shutil.which("ruff"), reason="ruff is not on the PATH")
def test_all_steps_run_though_one_fails(tmp_path):
    checkout = small_checkout(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    checkout.write("unsorted.py", "import sys\nimport os\nx  =  1\n")
    printed = checkout.scons("check", status=2)
    for line in (
        "ruff format   failed",
        "ruff check    failed",
        "mypy          ",
        "futhark fmt   ",
        "source rules  ",
    ):
        assert f"\n{line}" in printed
