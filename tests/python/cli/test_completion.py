"""Completion: what click's scripts for shells complete, asked of a real bash."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import shell_complete

from glm_engine.cli import command_line
from tests.python.commands.running import ENVIRONMENT, GLM, ROOT

ASK = """eval "$(_GLM_COMPLETE=bash_source glm)"
while read -r -a COMP_WORDS; do
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  _glm_completion glm
  echo "${COMPREPLY[*]}"
done"""
COMPLETED = {
    "glm s": {"smoke", "serve"},
    "glm plan --device c": {"cpu", "cuda"},
    "glm plan --max-batch 0 --expert-layout t": {"tensor_parallel"},
    "glm plan --no-such": set(),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment in which `glm` is a command."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "glm"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m glm_engine "$@"\n')
    program.chmod(0o755)
    return {**ENVIRONMENT, "PATH": f"{folder}{os.pathsep}{ENVIRONMENT['PATH']}"}


def test_bash_completes(environment):
    found = subprocess.run(
        [shutil.which("bash"), "--norc", "-c", ASK],
        cwd=ROOT,
        env=environment,
        input="".join(f"{line}\n" for line in COMPLETED),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (found.stderr, found.returncode) == ("", 0)
    answers = [set(line.split()) for line in found.stdout.splitlines()]
    assert dict(zip(COMPLETED, answers, strict=True)) == COMPLETED


@pytest.mark.parametrize(
    "words", ["serve --model", "chat --model", "plan", "serve --tokenizer", "deploy smoke --model"]
)
def test_the_shell_is_asked_for_the_path_of_a_checkpoint(words, monkeypatch, capsys):
    line = f"glm {words} ./check"
    for name, value in (("WORDS", line), ("CWORD", str(line.count(" ")))):
        monkeypatch.setenv(f"COMP_{name}", value)
    assert shell_complete(command_line.commands, {}, "glm", "_GLM_COMPLETE", "bash_complete") == 0
    assert capsys.readouterr().out == "file,./check\n"


@pytest.mark.parametrize(("shell", "words"), [("zsh", "#compdef glm"), ("fish", "complete ")])
def test_other_shells_have_a_script(shell, words, environment):
    asked = {**environment, "_GLM_COMPLETE": f"{shell}_source"}
    found = subprocess.run(GLM, cwd=ROOT, env=asked, capture_output=True, text=True, timeout=120)
    assert (found.stderr, found.returncode) == ("", 0)
    assert words in found.stdout
    assert f"_GLM_COMPLETE={shell}_complete" in found.stdout
