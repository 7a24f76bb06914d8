"""The process that compiles grammars first: what it answers, and that it ends with its parent."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from glm_engine.grammar import Limits
from glm_engine.grammar.proof import CostlyGrammarError, Proof

PACKAGE = Path(__file__).resolve().parents[3] / "python"
ORPHAN = f"""
import os, sys
sys.path.insert(0, {str(PACKAGE)!r})
from glm_engine.grammar import Limits
from glm_engine.grammar.proof import Proof
proof = Proof(Limits())
proof.problem_of("start: /a/")
print(proof.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def proof():
    found = Proof(Limits(seconds=1.0, memory_bytes=1 << 29))
    yield found
    found.stop()


def test_problems_are_told_and_their_absence(proof):
    assert proof.problem_of('start: "a" | <[12345]>') == ""
    assert "unknown name" in proof.problem_of("start: other")
    assert proof.problem_of('start: "\n') != ""


def test_what_takes_too_long_is_ended_and_the_next_is_answered(proof):
    rows = " & ".join(f"/(.*a){{{number}}}/" for number in range(5, 45))
    with pytest.raises(CostlyGrammarError, match="more than 1 s or 512 MiB"):
        proof.problem_of(f"start: A\nA: {rows}")
    assert proof.process is None
    assert proof.problem_of("start: /a/") == ""


def test_it_ends_with_its_parent():
    run = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, timeout=60)
    number = int(run.stdout)
    until = time.monotonic() + 10
    while psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)
