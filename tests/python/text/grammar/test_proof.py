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

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.text.grammar import Limits
from glm_engine.text.grammar.proof import CostlyGrammarError, Inquiry, Proof
from glm_engine.text.grammar.prover import answered

PACKAGE = Path(__file__).resolve().parents[4] / "python"
MOST_CPU_SECONDS = 5
MOST_SECONDS = 240
BUSY_SECONDS = 0.05
COSTLY = "start: A\nA: " + " & ".join(f"/(.*a){{{number}}}/" for number in range(5, 45))
ORPHAN = f"""
import os, sys, threading, time
sys.path.insert(0, {str(PACKAGE)!r})
from glm_engine.text.grammar import Limits
from glm_engine.text.grammar.proof import Inquiry, Proof
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


def test_a_child_that_waits_without_computing_is_ended():
    began = time.monotonic()
    problem, seconds, _ = answered(lambda: time.sleep(60), 1, 0.2, 64 << 20)
    assert problem is None
    assert seconds < 1
    assert time.monotonic() - began < 20


def test_a_panic_is_told(proof):
    schema = '{"type": "integer", "minimum": "%s"}' % ("é" * 60)
    began = time.monotonic()
    problem = problem_of(proof, f"start: x\nx: %json {schema}")
    assert problem.startswith("panic: ")
    assert time.monotonic() - began < 5


class Ended(Proof):
    """A proof whose process is ended when it is asked, as often as it is said."""

    def __init__(self, times):
        super().__init__(Limits(), 1.0)
        self.times_left = times

    def running(self):
        process = super().running()
        if self.is_asked and self.times_left:
            self.times_left -= 1
            process.process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return process

    is_asked = False

    def answer(self, *arguments):
        self.is_asked = True
        return super().answer(*arguments)


@pytest.mark.parametrize("grammar", ["start: /a/", f"start: /{'a' * 16_000}/"], ids=["few", "many"])
def test_a_process_that_is_ended_is_replaced_once(grammar):
    for times in (1, 2):
        proof = Ended(times)
        if times == 1:
            assert problem_of(proof, grammar) == ""
        else:
            with pytest.raises(NoAnswerError, match="was killed"):
                problem_of(proof, grammar)
            assert problem_of(proof, grammar) == ""
        proof.close()


def test_a_child_that_is_ended_from_outside_is_replaced(proof):
    problem_of(proof, "start: /a/")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(problem_of, proof, COSTLY)
        kill_a_child_of(proof)
        assert isinstance(asked.exception(), CostlyGrammarError)
        asked = pool.submit(problem_of, proof, COSTLY)
        for _ in range(2):
            kill_a_child_of(proof)
        assert type(asked.exception()) is not CostlyGrammarError
        assert isinstance(asked.exception(), NoAnswerError)


def kill_a_child_of(proof):
    """End the child that computes an answer, and wait until its parent has ended with it."""
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(psutil.NoSuchProcess, AttributeError):
            parent = psutil.Process(proof.process.pid)
            busy = [one for one in parent.children() if one.cpu_times().user > BUSY_SECONDS]
            if busy and proof.process.pid == parent.pid:
                busy[0].kill()
                psutil.wait_procs([parent], MOST_SECONDS)
                return
        time.sleep(0.01)


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
    os.kill(proof.process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(problem_of, proof, "start: /b/")
        time.sleep(1.5 * proof.seconds)
        os.kill(proof.process.pid, signal.SIGCONT)
        assert asked.result() == ""


def test_who_never_answers_is_ended():
    proof = Proof(Limits(patience_seconds=0.5), 1.0)
    proof.start()
    process = proof.process
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match="did not respond in time"):
        problem_of(proof, "start: /a/")
    assert not process.is_running


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
            assert isinstance(one.exception(), NoAnswerError)


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
