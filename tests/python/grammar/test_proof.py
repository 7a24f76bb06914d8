"""The process that compiles grammars first: what it answers, and that it ends with its parent."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from glm_engine.grammar import Limits
from glm_engine.grammar.proof import CostlyGrammarError, Proof

PACKAGE = Path(__file__).resolve().parents[3] / "python"
MOST_CPU_SECONDS = 5
MOST_SECONDS = 240
COSTLY = "start: A\nA: " + " & ".join(f"/(.*a){{{number}}}/" for number in range(5, 45))
ORPHAN = f"""
import os, sys, threading, time
sys.path.insert(0, {str(PACKAGE)!r})
from glm_engine.grammar import Limits
from glm_engine.grammar.proof import Proof
proof = Proof(Limits(seconds=1.0))
proof.problem_of("start: /a/")
print(proof.process.pid, flush=True)
if sys.argv[1] == "busy":
    threading.Thread(target=proof.problem_of, args=({COSTLY!r},)).start()
    time.sleep(0.3)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def proof():
    found = Proof(Limits(seconds=1.0, memory_bytes=1 << 29))
    yield found
    found.close()


def test_problems_are_told_and_their_absence(proof):
    assert proof.problem_of('start: "a" | <[12345]>') == ""
    assert "unknown name" in proof.problem_of("start: other")
    assert proof.problem_of('start: "\n') != ""


def test_what_takes_too_long_is_ended_and_the_next_is_answered(proof):
    with pytest.raises(CostlyGrammarError, match="more than 1 s or 512 MiB"):
        proof.problem_of(COSTLY)
    assert proof.process is None
    assert proof.problem_of("start: /a/") == ""


def test_time_in_which_it_cannot_run_does_not_count(proof):
    assert proof.problem_of("start: /a/") == ""
    proof.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(proof.problem_of, "start: /b/")
        time.sleep(1.5 * proof.limits.seconds)
        proof.process.send_signal(signal.SIGCONT)
        assert asked.result() == ""


def test_who_never_answers_is_ended():
    proof = Proof(Limits(patience_seconds=0.5))
    proof.start()
    proof.process.send_signal(signal.SIGSTOP)
    with pytest.raises(CostlyGrammarError):
        proof.problem_of("start: /a/")
    assert proof.process is None


def test_what_a_terminal_sends_its_commands_does_not_reach_it(proof):
    assert proof.problem_of("start: /a/") == ""
    assert os.getsid(proof.process.pid) != os.getsid(0)
    assert os.getpgid(proof.process.pid) != os.getpgid(0)


def test_closing_ends_the_question_that_is_asked(proof):
    proof.problem_of("start: /a/")
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(proof.problem_of, COSTLY) for _ in range(2)]
        proof.close()
        for one in asked:
            assert isinstance(one.exception(), CostlyGrammarError)


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_it_ends_with_its_parent(state):
    command = [sys.executable, "-c", ORPHAN, state]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=240)
    until = time.monotonic() + MOST_SECONDS
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(run.stdout))
        while process.status() != psutil.STATUS_ZOMBIE:
            assert sum(process.cpu_times()[:2]) < MOST_CPU_SECONDS
            assert time.monotonic() < until
            time.sleep(0.05)
