"""GLM_ variables that nothing reads are told, and nobody else's are."""

import re

import click
import pytest

from glm_engine.cli import command_line
from glm_engine.cli.option_sources import commands_below, known_keys, variable_of
from glm_engine.cli.unknown_variables import warn_of_unknown_variables
from tests.engine.probes import ROOT

FOLDERS = ("tools", "tests", "python", "nix", ".ci")
READ = re.compile(r"""(?:environ\b.{0,5}|VARIABLE = |export |\$\{?|getenv\()["']?(GLM_[A-Z_]+)""")
LINKS = {
    "PORT": "tcp://10.0.0.1:8000",
    "SERVICE_HOST": "10.0.0.1",
    "SERVICE_PORT": "8000",
    "SERVICE_PORT_HTTP": "8000",
    "PORT_8000_TCP": "tcp://10.0.0.1:8000",
    "PORT_8000_TCP_ADDR": "10.0.0.1",
    "PORT_8000_TCP_PORT": "8000",
    "PORT_8000_TCP_PROTO": "tcp",
}


def said(capsys, environment, command="plan"):
    ctx = click.Context(command_line.commands, info_name="glm")
    ctx.invoked_subcommand = command
    warn_of_unknown_variables(ctx, environment)
    out, error = capsys.readouterr()
    assert out == ""
    return error.splitlines()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GLM_MAX_BACH", "GLM_MAX_BATCH"),
        ("GLM_MAXBATCH", "GLM_MAX_BATCH"),
        ("GLM_MEMORY_LIMITS", "GLM_MEMORY_LIMIT"),
        ("GLM_APIKEYS", "GLM_API_KEYS"),
        ("GLM_KONFIG", "GLM_CONFIG"),
        ("GLM_PROT", "GLM_PORT"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "serve"])
def test_an_unknown_variable_is_told_with_the_one_that_was_meant(name, meant, command, capsys):
    lines = said(capsys, {name: "4", "PATH": "/bin", "GLM_MAX_SEQ": "4"}, command)
    assert lines == [f"glm: variable {name} is unknown; did you mean {meant}?"]


def test_each_has_a_line_whose_control_characters_are_spelt_out(capsys):
    lines = said(capsys, {"GLM_\x1b[2J\n": "", "GLM_QQQQ": ""})
    assert lines == [r"glm: variable GLM_\x1b[2J\n is unknown", "glm: variable GLM_QQQQ is unknown"]
    assert said(capsys, {"GLM_QQQQ": ""}, "absent") == []


@pytest.mark.parametrize("service", ["GLM", "GLM_ROUTER", "GLM_4_7"])
def test_links_of_kubernetes_are_no_mistake(service, capsys):
    assert said(capsys, {f"{service}_{end}": value for end, value in LINKS.items()}) == []
    assert len(said(capsys, {"GLM_ROUTER_PORT": "8000"})) == 1


def test_options_of_any_command_are_known_to_all(capsys):
    ctx = click.Context(command_line.commands, info_name="glm")
    for name in command_line.COMMANDS:
        for one in commands_below(command_line.commands, ctx).values():
            assert said(capsys, {variable_of(key): "1" for key in known_keys(one, ctx)}, name) == []


def test_what_this_tree_reads_is_known(capsys):
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.stat().st_size < 10**6:
                found |= set(READ.findall(path.read_text(encoding="utf-8", errors="replace")))
    assert {"GLM_ROOT", "GLM_CHROMIUM", "GLM_TEST_DEVICE", "GLM_DEPLOYED_JOB"} <= found
    assert said(capsys, dict.fromkeys(found, "x")) == []


def test_a_command_says_it_and_goes_on(monkeypatch, capsys):
    monkeypatch.setenv("GLM_MAX_BACH", "4")
    assert command_line.main(["plan", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("Fits.\n")
    line = "glm: variable GLM_MAX_BACH is unknown; did you mean GLM_MAX_BATCH?\n"
    assert captured.err == line
