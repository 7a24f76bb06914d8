"""`glm evaluate`: all capitals, and a model that knows none."""

import json
import re

import pytest

from glm_engine.cli.options import CAPITALS
from tests.python.commands.running import CPU, GLM, glm, glm_json
from tests.python.terminal.terminal import Terminal

COMMAND = ("evaluate", *CPU, "--limit", "3")


def test_evaluate_answers_all_at_once():
    report = glm_json("evaluate", *CPU)
    assert report["passed"] is True
    assert report["accuracy"] >= 0.95
    assert report["num_asked"] == len(json.loads((CAPITALS / "countries.json").read_text()))
    assert report["num_steps"] < report["generated_tokens"] / 4


def test_evaluate_fails_below_the_threshold(random_model):
    facts = CAPITALS / "countries.json"
    result = glm("evaluate", *CPU, "--model", random_model, "--facts", facts, "--limit", 3)
    assert result.returncode == 1
    assert re.search(r"right +0 of 3", result.stdout)


@pytest.fixture
def terminal():
    """The evaluation of three capitals in a pseudo-terminal."""
    try:
        found = Terminal(*COMMAND[1:], program=(*GLM, COMMAND[0]))
    except OSError as error:
        pytest.skip(f"this machine has no pseudo-terminals: {error}")
    yield found
    found.close()


def test_evaluate_shows_bars_on_a_terminal_only(terminal):
    assert terminal.end() == 0
    assert "capitals" in terminal.text
    assert "3/3" in terminal.text
    assert glm(*COMMAND).stderr == ""
