"""`glm evaluate`: all capitals, and a model that knows none."""

import json
import os
import pty
import re
import subprocess

import pytest

from glm_engine.options import CAPITALS
from tests.python.commands.running import CPU, ENVIRONMENT, GLM, ROOT, glm, glm_json


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
    """The two ends of a pseudo-terminal: what it shows, and what a program writes to."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"this machine has no pseudo-terminals: {error}")


def test_evaluate_shows_bars_on_a_terminal_only(terminal):
    screen, terminal = terminal
    command = [*GLM, "evaluate", *CPU, "--limit", "3"]
    result = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=terminal, timeout=120
    )
    os.close(terminal)
    drawn = os.read(screen, 65536).decode()
    os.close(screen)
    assert result.returncode == 0
    assert "capitals" in drawn
    assert "3/3" in drawn
    assert glm(*command[3:]).stderr == ""
