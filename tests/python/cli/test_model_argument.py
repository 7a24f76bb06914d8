"""MODEL before or behind the options is the same as `--model MODEL`."""

import click
import pytest

from glm_engine.cli import command_line
from glm_engine.core.layout import CAPITALS
from tests.python.cli.test_option_sources import COMMANDS, ROOT_CONTEXT, outcome, write

WITHOUT_ARGUMENT = {("generate",): ["x"], ("load",): ["x"], ("batch",): ["x", "y"]}
TARGETS = {
    path: target
    for path, command in COMMANDS.items()
    for target in ("model_dir", "model")
    if any(one.name == target for one in command.params)
}
WITH_ARGUMENT = [path for path in TARGETS if path not in WITHOUT_ARGUMENT]
HERE, THERE = str(CAPITALS), "config.json"


def chosen(path, *words):
    found = outcome(path, list(words))
    assert found != "refused"
    return found[TARGETS[path]]


def test_each_command_of_a_model_has_the_argument():
    names = {path[-1] for path in WITH_ARGUMENT}
    assert {"serve", "chat", "plan", "bench", "evaluate", "smoke", "inspect"} <= names
    for path in TARGETS:
        arguments = [one for one in COMMANDS[path].params if isinstance(one, click.Argument)]
        assert (arguments[0].metavar == "[MODEL]") == (path in WITH_ARGUMENT), path


@pytest.mark.parametrize("path", WITH_ARGUMENT, ids=" ".join)
def test_three_ways_to_state_a_model_are_one(path):
    stated = [(HERE,), ("--model", HERE), ("-m", HERE), (f"--model={HERE}",), (HERE, "-m", HERE)]
    assert {chosen(path, *words) for words in stated} == {HERE}
    flag = "--device" if path != ("inspect",) else "--match"
    assert chosen(path, flag, "cpu", HERE) == chosen(path, HERE, flag, "cpu") == HERE


@pytest.mark.parametrize("path", WITHOUT_ARGUMENT, ids=" ".join)
def test_commands_with_another_argument_have_the_short_option(path):
    others = WITHOUT_ARGUMENT[path]
    assert chosen(path, *others, "-m", HERE) == chosen(path, *others, "--model", HERE) == HERE


@pytest.mark.parametrize("path", WITH_ARGUMENT, ids=" ".join)
@pytest.mark.parametrize("words", [(HERE, "-m", THERE), ("--model", THERE, HERE)])
def test_two_models_are_refused_by_name(path, words, capsys):
    assert command_line.main([*path, *words]) == 2
    expected = f"glm: MODEL is {HERE!r} but --model is {THERE!r}; give only one\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize("path", WITH_ARGUMENT, ids=" ".join)
def test_an_empty_model_is_refused(path, capsys):
    assert command_line.main([*path, ""]) == 2
    assert capsys.readouterr().err == "glm: MODEL: expected a value, got an empty string\n"


@pytest.mark.parametrize("path", WITH_ARGUMENT, ids=" ".join)
def test_the_argument_wins_over_the_variable_and_the_file(path, tmp_path, monkeypatch):
    file = write(tmp_path, f'model = "{THERE}"\n')
    assert chosen(path, "--config", file) == THERE
    assert chosen(path, "--config", file, HERE) == HERE
    monkeypatch.setenv("GLM_MODEL", THERE)
    assert chosen(path) == THERE
    assert chosen(path, HERE) == HERE


def test_a_question_stands_behind_the_model():
    found = outcome(("chat",), [HERE, "one question", "--url", "http://127.0.0.1:9"])
    assert (found["model_dir"], found["question"]) == (HERE, "one question")
    assert outcome(("chat",), [HERE])["question"] is None
    assert outcome(("chat",), [HERE, "one", "two"]) == "refused"


def test_the_argument_counts_as_stated():
    made = COMMANDS[("plan",)].make_context("plan", [HERE], parent=ROOT_CONTEXT)
    assert made.get_parameter_source("model_dir") is click.core.ParameterSource.COMMANDLINE
