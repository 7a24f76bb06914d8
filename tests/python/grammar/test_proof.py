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
from glm_engine.grammar.proof import CostlyGrammarError, Inquiry, Proof

PACKAGE = Path(__file__).resolve().parents[3] / "python"
MOST_CPU_SECONDS = 5
MOST_SECONDS = 240
COSTLY = "start: A\nA: " + " & ".join(f"/(.*a){{{number}}}/" for number in range(5, 45))
ORPHAN = f"""
import os, sys, threading, time
sys.path.insert(0, {str(PACKAGE)!r})
from glm_engine.grammar import Limits
from glm_engine.grammar.proof import Inquiry, Proof
proof = Proof(Limits(), 1.0)
Inquiry(proof).problem_of("start: /a/")
print(proof.process.pid, flush=True)
if sys.argv[1] == "busy":
    threading.Thread(target=Inquiry(proof).problem_of, args=({COSTLY!r},)).start()
    time.sleep(0.3)
os.kill(os.getpid(), 9)
"""


def problem_of(proof, grammar):
    return Inquiry(proof).problem_of(grammar)


@pytest.fixture
def proof():
    found = Proof(Limits(), 1.0)
    yield found
    found.close()


def test_problems_are_told_and_their_absence(proof):
    assert problem_of(proof, 'start: "a" | <[12345]>') == ""
    assert "unknown name" in problem_of(proof, "start: other")
    assert problem_of(proof, 'start: "\n') != ""


def test_what_takes_too_long_is_ended_and_the_next_is_answered(proof):
    problem_of(proof, "start: /a/")
    process = proof.process
    with pytest.raises(CostlyGrammarError, match="more than 1 s or 64 MiB"):
        problem_of(proof, COSTLY)
    assert problem_of(proof, "start: /a/") == ""
    assert proof.process is process


class EndedBefore(Proof):
    """A proof whose first process ends before it is sent its `last` line."""

    def __init__(self, last):
        super().__init__(Limits(), 1.0)
        self.lines_left = last

    def send(self, message):
        self.lines_left -= 1
        if self.lines_left == 0:
            os.kill(self.process.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return super().send(message)


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize(
    "grammar", ["start: /a/", f"start: /{'a' * 500_000}/"], ids=["few", "many"]
)
def test_a_process_that_ends_before_it_is_asked_is_told_and_another_answers(last, grammar):
    proof = EndedBefore(last)
    with pytest.raises(CostlyGrammarError, match="64 MiB"):
        problem_of(proof, grammar)
    assert problem_of(proof, "start: /a/") == ""
    proof.close()


@pytest.mark.parametrize("pattern", ["a{1000000}", "x" * 500_000, "z(w{1000}){1000}"])
def test_what_would_take_too_much_memory_is_given_up_before_it_does(proof, pattern):
    with pytest.raises(CostlyGrammarError, match="64 MiB"):
        problem_of(proof, f"start: /{pattern}/")


def test_what_a_grammar_takes_is_told(proof):
    answer = Inquiry(proof).answer("start: /a{16000}/")
    assert answer.problem == ""
    assert 4 << 20 < answer.num_bytes < 16 << 20
    assert 0 < answer.seconds < proof.seconds
    assert Inquiry(proof).answer("start: /a/").num_bytes < 1 << 20


def test_all_questions_of_an_inquiry_share_its_seconds(proof):
    inquiry = Inquiry(proof)
    with pytest.raises(CostlyGrammarError, match="more than 1 s"):
        inquiry.answer(COSTLY, share=1 / 2)
    proof.seconds = 0.05
    inquiry, problems = Inquiry(proof), []
    with contextlib.suppress(CostlyGrammarError):
        while len(problems) < 1000:
            problems.append(inquiry.problem_of("start: /(.*a){20}/"))
    assert set(problems) == {""}
    assert len(problems) < 1000
    assert inquiry.is_spent


def test_time_in_which_it_cannot_run_does_not_count(proof):
    assert problem_of(proof, "start: /a/") == ""
    proof.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(problem_of, proof, "start: /b/")
        time.sleep(1.5 * proof.seconds)
        proof.process.send_signal(signal.SIGCONT)
        assert asked.result() == ""


def test_who_never_answers_is_ended():
    proof = Proof(Limits(patience_seconds=0.5), 1.0)
    proof.start()
    proof.process.send_signal(signal.SIGSTOP)
    with pytest.raises(CostlyGrammarError):
        problem_of(proof, "start: /a/")
    assert proof.process is None


def test_what_a_terminal_sends_its_commands_does_not_reach_it(proof):
    assert problem_of(proof, "start: /a/") == ""
    assert os.getsid(proof.process.pid) != os.getsid(0)
    assert os.getpgid(proof.process.pid) != os.getpgid(0)


def test_closing_ends_the_question_that_is_asked(proof):
    problem_of(proof, "start: /a/")
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(problem_of, proof, COSTLY) for _ in range(2)]
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
