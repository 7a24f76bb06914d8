"""What .replit starts: a build, then a server on the port that is shown."""

import shlex
import tomllib
from pathlib import Path

import pytest

from glm_engine.commands.serve import command

ROOT = Path(__file__).resolve().parents[2]
SERVE = ["tools/develop", "glm", "serve"]


@pytest.fixture(scope="module")
def replit():
    return tomllib.loads((ROOT / ".replit").read_text())


def served(words):
    """The options of glm serve, as its own parser reads them."""
    assert words[: len(SERVE)] == SERVE
    return command.make_context("serve", words[len(SERVE) :]).params


def test_run_button_builds_then_serves_where_it_is_shown(replit):
    shell, option, script = replit["run"]
    build, serve = script.split(" && ")
    assert (shell, option) == ("sh", "-c")
    assert shlex.split(build) == replit["deployment"]["build"]
    assert serve.startswith("exec ")
    options = served(shlex.split(serve.removeprefix("exec ")))
    assert options["host"] == "0.0.0.0"
    assert replit["ports"] == [{"localPort": options["port"], "externalPort": 80}]


def test_deployment_serves_on_the_same_port(replit):
    options = served(replit["deployment"]["run"])
    assert (options["host"], options["port"]) == ("0.0.0.0", replit["ports"][0]["localPort"])
