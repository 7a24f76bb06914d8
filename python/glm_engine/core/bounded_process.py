"""Processes of their own for work that may never end: asked and answered in lines of JSON.

Each has of the environment only what Python needs to run, no open file but its pipes, and ends with
its input. Its parent waits by the clock, for the question to be taken as for the answer.
"""

import contextlib
import errno
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from glm_engine.core.errors import GlmError

MILLISECONDS = 1000
PIECE_BYTES = 1 << 16
OUT_OF_MEMORY = errno.ENOMEM
OVERSPENT = (OUT_OF_MEMORY, -signal.SIGPROF)
KEPT_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONPYCACHEPREFIX",
    "PYTHONDONTWRITEBYTECODE",
    "HOME",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_TIME",
    "TZ",
)


class NoAnswerError(GlmError):
    """A process that was asked gave no answer, by no fault of the question."""


class EndedError(NoAnswerError):
    """The process was ended from outside while it was asked."""


class OverspentError(Exception):
    """An answer takes more memory or processor time than the process may take."""


@dataclass(frozen=True)
class Bounds:
    """seconds: processor time of an answer; patience_seconds: time until it is there."""

    seconds: float
    patience_seconds: float
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.seconds:g} s or {self.memory_bytes >> 20} MiB"


class BoundedProcess:
    """A process that Python runs by `arguments`, apart from the terminal's signals.

    name: what errors call it.
    """

    def __init__(self, name: str, *arguments: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-P", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
            start_new_session=True,
        )
        self.pid = self.process.pid
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.pipes = self.process.stdin, self.process.stdout
        self.writer, self.reader = (pipe.fileno() for pipe in self.pipes)
        for pipe in (self.writer, self.reader):
            os.set_blocking(pipe, False)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def ask(self, question: object, until: float) -> Any:
        """Return the answer that is there until then, by the clock; else the process is ended.

        OverspentError, EndedError and NoAnswerError say why there is none.
        """
        try:
            self.send(line_of(question), until)
            return read_line(self.receive(until))
        except TimeoutError as error:
            self.stop()
            raise NoAnswerError(f"{self.name} did not respond in time") from error
        except (BrokenPipeError, EOFError) as error:
            if self.stop() in OVERSPENT:
                raise OverspentError from error
            raise EndedError(f"{self.name} was killed") from error

    def send(self, message: bytes, until: float) -> None:
        rest = memoryview(message)
        while rest:
            wait_for(self.writer, select.POLLOUT, until)
            rest = rest[os.write(self.writer, rest) :]

    def receive(self, until: float) -> bytearray:
        """Return a line."""
        line = bytearray()
        while not line.endswith(b"\n"):
            wait_for(self.reader, select.POLLIN, until)
            piece = os.read(self.reader, PIECE_BYTES)
            if not piece:
                raise EOFError
            line += piece
        return line

    def kill(self) -> None:
        """End it and all that it has started; another thread may be asking it."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def stop(self) -> int:
        """End it, and return its exit code as `subprocess` has it."""
        self.kill()
        for pipe in self.pipes:
            pipe.close()
        return self.process.wait()


def clean_environment() -> dict[str, str]:
    """Return the environment of a process that has nothing to do with keys and settings."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def wait_for(pipe: int, event: int, until: float) -> None:
    """Return when a pipe is ready; TimeoutError where the time comes first."""
    ready = select.poll()
    ready.register(pipe, event)
    if not ready.poll(max(0, until - time.monotonic()) * MILLISECONDS):
        raise TimeoutError


def ask_once_more(
    take: Callable[[], BoundedProcess], question: object, seconds: float
) -> tuple[BoundedProcess, Any]:
    """Return the process that answers a question, and its answer.

    `take` gives the process, and another one where the first is ended from outside.
    """
    until = time.monotonic() + seconds
    with contextlib.suppress(EndedError):
        process = take()
        return process, process.ask(question, until)
    process = take()
    return process, process.ask(question, until)


def line_of(question: object) -> bytes:
    """Return a question as a line of JSON: in no time by orjson, but for what it refuses."""
    try:
        return orjson.dumps(question, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(question).encode() + b"\n"


def read_line(answer: bytes | bytearray) -> Any:
    """Return what a line of JSON says; half of a surrogate pair is nothing that orjson reads."""
    try:
        return orjson.loads(answer)
    except ValueError:
        return json.loads(answer)


def answer_questions(answer: Callable[[Any], object]) -> None:
    """What a process does: bound itself, and answer each line of its input."""
    seconds, memory_bytes = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        for line in sys.stdin:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
            sys.stdout.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
