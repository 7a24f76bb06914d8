"""What .replit starts: a build, then a server with a key on the port that is shown."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from glm_engine.commands.serve import command

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ["bash", "tools/replit"]
BUILD = "scons cpu engine"
DEVELOP = """#!/bin/sh
echo "$@" >>"$RECORD"
[ "$1" != python ] || exec "$PYTHON" "$2" "$3"
"""


@pytest.fixture(scope="module")
def replit():
    return tomllib.loads((ROOT / ".replit").read_text())


class Repl:
    """A folder with tools/replit and a tools/develop that writes down what it was asked."""

    def __init__(self, folder):
        self.folder = folder
        self.record = folder / "record"
        self.keys = folder / ".toolchain" / "replit-keys"
        self.keys.parent.mkdir()
        (folder / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "replit", folder / "tools")
        (folder / "tools" / "develop").write_text(DEVELOP)
        (folder / "tools" / "develop").chmod(0o755)

    def run(self, *arguments, **variables):
        """The finished script, and what it asked of tools/develop."""
        self.record.write_text("")
        environment = {"PATH": os.environ["PATH"], "RECORD": str(self.record)}
        done = subprocess.run(
            [*SCRIPT, *arguments],
            cwd=self.folder,
            env=environment | {"PYTHON": sys.executable} | variables,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done, self.record.read_text().splitlines()


@pytest.fixture
def repl(tmp_path):
    return Repl(tmp_path)


def served(line):
    """The options of glm serve, as its own parser reads them."""
    words = shlex.split(line)
    assert words[:2] == ["glm", "serve"]
    return command.make_context("serve", words[2:]).params


def test_replit_runs_the_script(replit):
    assert replit["run"] == [*SCRIPT, "serve"]
    assert replit["deployment"] == {"build": [*SCRIPT, "build"], "run": [*SCRIPT, "serve"]}


def test_serves_with_a_key_of_its_own_where_it_is_shown(replit, repl):
    done, (build, _, serve) = repl.run("serve")
    assert done.returncode == 0, done.stderr
    assert build == BUILD
    options = served(serve)
    assert options["host"] == "0.0.0.0"
    assert replit["ports"] == [{"localPort": options["port"], "externalPort": 80}]
    assert repl.folder / options["api_key_file"] == repl.keys
    key = repl.keys.read_text().strip()
    assert len(key) == 32
    assert key in done.stdout
    assert stat.S_IMODE(repl.keys.stat().st_mode) == 0o600


def test_key_stays_until_it_is_removed(repl):
    repl.run("serve")
    first = repl.keys.read_text()
    repl.run("serve")
    assert repl.keys.read_text() == first
    repl.keys.unlink()
    repl.run("serve")
    assert repl.keys.read_text() != first


def test_keys_among_the_secrets_are_taken_instead(repl):
    done, (build, serve) = repl.run("serve", GLM_API_KEYS="secret")
    assert build == BUILD
    assert served(serve)["host"] == "0.0.0.0"
    assert served(serve)["api_key_file"] is None
    assert not repl.keys.exists()
    assert "secret" not in done.stdout


def test_build_alone_serves_nothing(repl):
    assert repl.run("build")[1] == [BUILD]


@pytest.mark.parametrize("word", ["", "deploy"])
def test_other_words_are_refused(word, repl):
    done, asked = repl.run(word)
    assert (done.returncode, asked) == (2, [])
    assert done.stderr.startswith(f"tools/replit: expected build or serve, got '{word}'\n")


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({"REPLIT_LD_LIBRARY_PATH": "/a"}, "/a"),
        ({"REPLIT_LD_LIBRARY_PATH": "/a", "LD_LIBRARY_PATH": "/b"}, "/b"),
    ],
)
def test_libraries_of_the_repl_reach_what_it_runs(variables, path, repl):
    (repl.folder / "tools" / "develop").write_text(
        '#!/bin/sh\necho "$LD_LIBRARY_PATH" >>"$RECORD"\n'
    )
    assert repl.run("build", **variables)[1] == [path]
