"""Values that are stated and empty: refused by every command, for every option and variable."""

import click
import pytest

from glm_engine.cli import command_line
from glm_engine.core.errors import BadInputError, variable
from tests.python.commands.running import ENVIRONMENT, refused

VARIABLES = {
    "GLM_MODEL": ("smoke", "generate", "inspect", "plan", "evaluate", "bench", "serve", "load"),
    "GLM_API_KEYS": ("serve",),
    "GLM_API_KEY": ("load",),
    "GLM_ENGINE_LIBRARY": ("plan",),
    "GLM_TRACEBACK": ("plan",),
}


def takes_a_value(param):
    """Say whether a parameter has a value, rather than a list of the names of commands."""
    return param.nargs == 1 if isinstance(param, click.Argument) else not param.is_flag


def named(param):
    return param.opts[0] if isinstance(param, click.Option) else param.metavar or param.name.upper()


def stated_in(name):
    params = command_line.commands.get_command(None, name).params
    return [(name, param) for param in params if takes_a_value(param)]


def before(name, argument):
    """Return an empty value of an argument, behind values of the arguments that come first."""
    params = command_line.commands.get_command(None, name).params
    arguments = [param for param in params if isinstance(param, click.Argument)]
    return ["x"] * arguments.index(argument) + [""]


STATED = [pair for name in command_line.COMMANDS for pair in stated_in(name)]


@pytest.mark.parametrize(("name", "param"), STATED, ids=lambda one: getattr(one, "name", one))
def test_no_option_and_no_argument_is_empty(name, param, capsys):
    stated = [param.opts[0], ""] if isinstance(param, click.Option) else before(name, param)
    assert command_line.main([name, *stated]) == 2
    expected = f"glm: {named(param).strip('[]')}: expected a value, got an empty string\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    "stated", [["--allowed-host="], ["--allowed-host", "a.org", "--allowed-host", ""]]
)
def test_however_it_is_stated(stated, capsys):
    assert command_line.main(["serve", *stated]) == 2
    assert capsys.readouterr().err.startswith("glm: --allowed-host: expected a value")


@pytest.mark.parametrize(
    ("name", "command"), [(name, one) for name, found in VARIABLES.items() for one in found]
)
def test_no_variable_is_empty(name, command, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, name, "")
    arguments = {"generate": ("x",), "bench": ("--synthetic", "x"), "serve": ("--port", "0")}
    line = refused(command, *arguments.get(command, ()))
    assert line == f"glm: {name}: expected a value, got an empty string\n"


def test_a_variable_is_what_it_says_or_nothing():
    assert variable("NAME", {"NAME": " "}) == " "
    assert variable("NAME", {}) is None
    with pytest.raises(BadInputError, match="NAME: expected a value"):
        variable("NAME", {"NAME": ""})
