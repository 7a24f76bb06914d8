"""`.ci/run`: the README's own commands in a clone of their own, CONTRIBUTING's beside them."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDER = """#!/bin/sh
echo "${{PWD##*/}}: $(ls -A "$HOME"): tools/develop $*" >>{record}
[ "$*" != {failing} ]
"""


def block(name, mark=""):
    """The lines of a document's first fenced block with this mark."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split(f"```{mark}\n")[1].split("```")[0].strip().splitlines()


def run(folder, failing="none"):
    """Runs .ci/run where tools/develop writes down its folder, its home's files and its words."""
    checkout, record, home = folder / "check out", folder / "record", folder / "home"
    recorder = RECORDER.format(record=shlex.quote(str(record)), failing=shlex.quote(failing))
    for path in (checkout / "tools", checkout / ".ci", home):
        path.mkdir(parents=True)
    for name in (".ci/run", "README.md"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "tools" / "develop").write_text(recorder)
    (checkout / "tools" / "develop").chmod(0o755)
    (home / "settings").touch()
    git = ["git", "-C", checkout, "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "everything"]):
        subprocess.run([*git, *arguments], check=True)
    variables = os.environ | {"HOME": str(home), "TMPDIR": str(folder)}
    done = subprocess.run([checkout / ".ci" / "run"], env=variables, capture_output=True)
    assert {path.name for path in folder.iterdir()} == {"check out", "record", "home"}
    return done.returncode, record.read_text().splitlines()


def said(command):
    """A command as the recorder writes it, its quotes gone."""
    return " ".join(shlex.split(command))


def test_the_readme_marks_the_commands_of_a_newcomer():
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("```sh checkout\n") == 1
    assert block("README.md", "sh checkout") == [
        "git clone ADDRESS glm && cd glm",
        "tools/develop scons smoke",
        "tools/develop scons test",
    ]


def test_they_run_in_a_clone_with_an_empty_home_and_those_of_contributing_beside_it(tmp_path):
    in_clone = [f"glm: : {said(line)}" for line in block("README.md", "sh checkout")[1:]]
    beside = [f"check out: settings: {said(line)}" for line in block("CONTRIBUTING.md")]
    assert run(tmp_path) == (0, in_clone + beside)


def test_the_first_that_fails_is_the_last(tmp_path):
    status, calls = run(tmp_path, failing="scons smoke")
    assert (status != 0, calls) == (True, ["glm: : tools/develop scons smoke"])
