"""Asks the process of `prover.py` whether a grammar compiles, and ends it when it will not say."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from glm_engine.errors import BadInputError
from glm_engine.grammar.limits import PARSER_LIMITS

PROVER = Path(__file__).with_name("prover.py")
LEAST_SECONDS = 0.001


class CostlyGrammarError(BadInputError):
    """A grammar whose compilation was given up."""


@dataclass(frozen=True)
class Answer:
    """Why a grammar does not compile ("" if it does), and what compiling it took."""

    problem: str | None
    seconds: float
    num_bytes: int


class Proof:
    """One such process, started when it is first asked; one question at a time.

    seconds: processor time that all questions about one grammar may take together.
    """

    def __init__(self, limits, seconds, niceness=0):
        self.limits = limits
        self.seconds = seconds
        self.niceness = niceness
        self.lock = threading.Lock()
        self.process = None
        self.is_closed = False

    def answer(self, grammar, seconds, patience):
        """Return the `Answer` about a grammar; CostlyGrammarError where it will not say."""
        with self.lock:
            if not self.is_closed and (self.process is None or self.process.poll() is not None):
                self.stop()
                self.start()
            if self.is_closed:
                raise CostlyGrammarError("the compiler of grammars has ended")
            line = self.ask({"grammar": grammar, "seconds": seconds}, patience)
            if not line:
                self.stop()
                raise self.costly()
            return Answer(**json.loads(line))

    def costly(self):
        return CostlyGrammarError(
            f"compiling it takes more than {self.seconds:g} s or "
            f"{self.limits.memory_bytes >> 20} MiB"
        )

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, str(PROVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        bounds = {"memory_bytes": self.limits.memory_bytes, "niceness": self.niceness}
        self.send({**PARSER_LIMITS, **bounds})

    def send(self, message):
        """Return whether the process, which may have ended, took the line."""
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def ask(self, question, patience):
        """Return the line of the answer; empty where the process ended or did not say in time."""
        if not self.send(question):
            return b""
        ready, _, _ = select.select([self.process.stdout], [], [], max(0, patience))
        return self.process.stdout.readline() if ready else b""

    def close(self):
        """Let the question that is asked, and all later ones, end without an answer."""
        self.is_closed = True
        if process := self.process:
            kill(process)
        with self.lock:
            self.stop()

    def stop(self):
        if self.process is not None:
            kill(self.process)
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


def kill(process):
    """End a process and the child that answers for it."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class Inquiry:
    """The questions about one grammar, which share the processor's time and the clock's."""

    def __init__(self, proof):
        self.proof = proof
        self.seconds_left = proof.seconds
        self.until = time.monotonic() + proof.limits.patience_seconds
        self.is_spent = False

    def answer(self, grammar, share=1.0):
        """Return the `Answer` that takes no more than a share of what is left."""
        seconds, patience = share * self.seconds_left, self.until - time.monotonic()
        self.is_spent = seconds < LEAST_SECONDS or patience <= 0
        if self.is_spent:
            raise self.proof.costly()
        answer = self.proof.answer(grammar, seconds, patience)
        self.seconds_left -= answer.seconds
        self.is_spent = answer.problem is None
        if self.is_spent:
            raise self.proof.costly()
        return answer

    def problem_of(self, grammar):
        return self.answer(grammar).problem
