"""Asks the process of `prover.py` whether a grammar compiles, and ends it when it will not say."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from glm_engine.core.bounded_process import BoundedProcess, NoAnswerError, ask_once_more
from glm_engine.core.errors import BadInputError
from glm_engine.text.grammar.cost_limits import PARSER_LIMITS, Limits

ProblemOf = Callable[[str], str]
PROVER = Path(__file__).with_name("prover.py")
PROCESS_NAME = "the process that compiles grammars"
LEAST_SECONDS = 0.001
START_SECONDS = 60.0
GRACE_SECONDS = 1.0


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

    seconds: processor time that all questions about one grammar may take together;
    patience_seconds: the same by the clock.
    """

    def __init__(
        self,
        limits: Limits,
        seconds: float,
        niceness: int = 0,
        patience_seconds: float | None = None,
    ) -> None:
        self.limits = limits
        self.seconds = seconds
        self.niceness = niceness
        self.patience_seconds = patience_seconds or limits.patience_seconds
        self.lock = threading.Lock()
        self.process: BoundedProcess | None = None
        self.is_closed = False

    def answer(self, grammar: str, seconds: float, patience_seconds: float) -> Answer:
        """Return the `Answer` about a grammar; NoAnswerError where the process will not say.

        The process itself gives up its child in time, unless it cannot run.
        """
        question = {"grammar": grammar, "seconds": seconds, "patience_seconds": patience_seconds}
        with self.lock:
            _, answer = ask_once_more(self.running, question, patience_seconds + GRACE_SECONDS)
        return Answer(**answer)

    def costly(self) -> CostlyGrammarError:
        return CostlyGrammarError(
            f"the grammar takes more than {self.seconds:g} s or "
            f"{self.limits.memory_bytes >> 20} MiB to compile"
        )

    def open(self) -> None:
        """Start the process where none runs."""
        with self.lock:
            self.running()

    def running(self) -> BoundedProcess:
        """Return the process, which is there to be asked."""
        if not self.is_closed and (self.process is None or not self.process.is_running):
            self.stop()
            self.start()
        if self.is_closed or self.process is None:
            raise NoAnswerError(f"{PROCESS_NAME} has ended")
        return self.process

    def start(self) -> None:
        bounds = {"memory_bytes": self.limits.memory_bytes, "niceness": self.niceness}
        self.process = BoundedProcess(PROCESS_NAME, str(PROVER))
        if not self.is_closed:
            self.process.ask({**PARSER_LIMITS, **bounds}, time.monotonic() + START_SECONDS)

    def close(self) -> None:
        """Let the question that is asked, and all later ones, end without an answer."""
        self.is_closed = True
        if process := self.process:
            process.kill()
        with self.lock:
            self.stop()

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None


class Inquiry:
    """The questions about one grammar, which share the processor's time and the clock's."""

    def __init__(self, proof: Proof) -> None:
        proof.open()
        self.proof = proof
        self.seconds_left = proof.seconds
        self.until = time.monotonic() + proof.patience_seconds
        self.is_spent = False

    def answer(self, grammar: str, share: float = 1.0) -> Answer:
        """Return the `Answer` that takes no more than a share of what is left."""
        seconds, patience = share * self.seconds_left, self.until - time.monotonic()
        self.is_spent = min(seconds, patience) < LEAST_SECONDS
        if self.is_spent:
            raise self.proof.costly()
        answer = self.proof.answer(grammar, seconds, patience)
        self.seconds_left -= answer.seconds
        self.is_spent = answer.problem is None
        if self.is_spent:
            raise self.proof.costly()
        return answer

    def problem_of(self, grammar: str) -> str:
        return self.answer(grammar).problem or ""
