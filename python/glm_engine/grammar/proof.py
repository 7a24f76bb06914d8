"""Asks the process of `prover.py` whether a grammar compiles, and ends it when it will not say."""

import json
import select
import subprocess
import sys
import threading
from pathlib import Path

from glm_engine.errors import BadInputError
from glm_engine.grammar.limits import PARSER_LIMITS

PROVER = Path(__file__).with_name("prover.py")


class CostlyGrammarError(BadInputError):
    """A grammar whose compilation was given up."""


class Proof:
    """One such process, started when it is first asked; one question at a time."""

    def __init__(self, limits):
        self.limits = limits
        self.lock = threading.Lock()
        self.process = None
        self.is_closed = False

    def problem_of(self, grammar):
        """Return why a grammar does not compile, "" if it does.

        CostlyGrammarError where it will not say.
        """
        with self.lock:
            if not self.is_closed and (self.process is None or self.process.poll() is not None):
                self.stop()
                self.start()
            if self.is_closed:
                raise CostlyGrammarError("the compiler of grammars has ended")
            answer = self.ask(grammar)
            if not answer:
                self.stop()
                raise CostlyGrammarError(
                    f"compiling it takes more than {self.limits.seconds:g} s or "
                    f"{self.limits.memory_bytes >> 20} MiB"
                )
            return json.loads(answer)

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, str(PROVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        bounds = {"memory_bytes": self.limits.memory_bytes, "seconds": self.limits.seconds}
        self.send({**PARSER_LIMITS, **bounds})

    def send(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, grammar):
        """Return the line of the answer; empty where the process ended or did not say in time."""
        try:
            self.send(grammar)
        except BrokenPipeError:
            return b""
        ready, _, _ = select.select([self.process.stdout], [], [], self.limits.patience_seconds)
        return self.process.stdout.readline() if ready else b""

    def close(self):
        """Let the question that is asked, and all later ones, end without an answer."""
        self.is_closed = True
        if process := self.process:
            process.kill()
        with self.lock:
            self.stop()

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None
