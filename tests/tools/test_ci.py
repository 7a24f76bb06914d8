"""`.ci/run`: the README's own commands in a clone of their own, CONTRIBUTING's beside them."""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHEBANG = f"#!{shutil.which('bash')}"
RECORDER = r"""
record={record} failing={failing}
found=$(ls -Am "$HOME")
printf -v command '%q ' "$@"
printf -v variables '%s ' $(compgen -e)
printf '%s\t' "$PWD" "$HOME" "$found" "$variables" "$command" >>"$record"
printf '\n' >>"$record"
mkdir -p "$HOME/.cache"
[[ $* != "$failing" ]]
"""
SETTINGS = {"PIP_DEFAULT_TIMEOUT": "60", "no_proxy": "localhost"}
OTHERS = {"GLM_GROUPS": "oracle", "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": "/nowhere"}
DROPPED = ("PIP_CONFIG_FILE", "XDG_CONFIG_HOME")
OF_BASH = {"OLDPWD", "PWD", "SHLVL", "_"}
NETWORK = r"pip_.*|.*_proxy|.*_ca_bundle|ssl_cert_.*|git_ssl_.*"


def first_block(name, marked=""):
    """The lines of a document's first fenced block, or of the first that is marked so."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split(f"```{marked}\n")[1].split("```")[0].strip().splitlines()


def checkout_block():
    """The README's commands for a checkout, which `.ci/run` runs."""
    return first_block("README.md", marked="sh checkout")


@dataclass(frozen=True)
class Call:
    """One call of tools/develop."""

    folder: Path
    home: Path
    in_home: str
    variables: set[str]
    command: list[str]


@dataclass(frozen=True)
class Done:
    status: int
    calls: list[Call]


def run(folder, failing="none"):
    """Runs .ci/run in a repository of its own whose tools/develop records how it was called."""
    checkout, record = folder / "check out", folder / "record"
    for name in (".ci/run", "README.md"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "tools").mkdir()
    recorder = RECORDER.format(record=shlex.quote(str(record)), failing=shlex.quote(failing))
    (checkout / "tools" / "develop").write_text(SHEBANG + recorder)
    (checkout / "tools" / "develop").chmod(0o755)
    git = ["git", "-C", checkout, "-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "everything"]):
        subprocess.run([*git, *arguments], check=True)
    for name in ("temporary", "home/.config/pip"):
        (folder / name).mkdir(parents=True)
    (folder / "home" / ".config" / "pip" / "pip.conf").write_text("[global]\ntimeout = 60\n")
    given = {"TMPDIR": str(folder / "temporary"), "HOME": str(folder / "home")}
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    done = subprocess.run(
        [checkout / ".ci" / "run"],
        env={**kept, **SETTINGS, **OTHERS, **given},
        capture_output=True,
    )
    lines = [line.split("\t")[:-1] for line in record.read_text().splitlines()]
    calls = [
        Call(Path(where), Path(home), in_home, set(variables.split()), shlex.split(command))
        for where, home, in_home, variables, command in lines
    ]
    assert list((folder / "temporary").iterdir()) == []
    return Done(done.returncode, calls)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run(tmp_path_factory.mktemp("ci"))


def in_clone(call):
    return call.folder.name == "glm"


def test_the_readme_marks_the_commands_of_a_newcomer():
    assert (ROOT / "README.md").read_text(encoding="utf-8").count("```sh checkout\n") == 1
    assert checkout_block() == [
        "git clone ADDRESS glm && cd glm",
        "tools/develop scons smoke",
        "tools/develop scons test",
    ]


def test_they_run_as_they_stand_and_nothing_more_in_a_clone(done):
    commands = [["tools/develop", *call.command] for call in done.calls if in_clone(call)]
    assert commands == [shlex.split(line) for line in checkout_block()[1:]]


def test_they_have_an_empty_home_and_no_variables_but_those_of_the_network(done):
    calls = [call for call in done.calls if in_clone(call)]
    assert {call.home for call in calls} == {calls[0].folder.parent / "home"}
    assert [call.in_home for call in calls] == ["", ".cache"]
    for call in calls:
        assert {"HOME", "PATH", "PIP_CONFIG_FILE", *SETTINGS} <= call.variables
        others = call.variables - {"HOME", "PATH", *SETTINGS} - OF_BASH
        assert all(re.fullmatch(NETWORK, name, re.IGNORECASE) for name in others), others


def test_the_commands_of_contributing_run_beside_them_in_the_checkout(done):
    assert done.status == 0
    calls = [call for call in done.calls if not in_clone(call)]
    assert {call.folder.name for call in calls} == {"check out"}
    commands = [["tools/develop", *call.command] for call in calls]
    assert commands == [shlex.split(line) for line in first_block("CONTRIBUTING.md")]


def test_every_command_keeps_the_bytecode_of_what_it_imports(done):
    assert all("PYTHONDONTWRITEBYTECODE" not in call.variables for call in done.calls)


def test_it_stops_at_the_first_that_fails_and_leaves_no_clone(tmp_path):
    done = run(tmp_path, failing="scons smoke")
    assert done.status != 0
    assert [call.command for call in done.calls if in_clone(call)] == [["scons", "smoke"]]
    assert done.calls[-1].command == ["scons", "smoke"]
