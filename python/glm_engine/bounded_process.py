"""A process of its own for work that may never end: asked and answered in lines of JSON.

It is bounded in memory and, for each question, in processor time; it ends with its input, and its
parent ends it when it does not answer.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
from dataclasses import dataclass

import orjson

MILLISECONDS = 1000


@dataclass(frozen=True)
class Bounds:
    """seconds: processor time of an answer; patience_seconds: time until it is there."""

    seconds: float
    patience_seconds: float
    memory_bytes: int

    def __str__(self):
        return f"{self.seconds:g} s or {self.memory_bytes >> 20} MiB"


class BoundedProcess:
    """One process that runs a module, which calls `answer_questions`."""

    def __init__(self, module, bounds):
        self.bounds = bounds
        path = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, json.dumps([bounds.seconds, bounds.memory_bytes])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            process_group=0,
        )
        self.ready = select.poll()
        self.ready.register(self.process.stdout, select.POLLIN)

    @property
    def is_running(self):
        return self.process.poll() is None

    def ask(self, question):
        """Return the answer; None where there is none within the bounds: then it is ended."""
        try:
            self.process.stdin.write(line_of(question))
            self.process.stdin.flush()
            is_ready = self.ready.poll(self.bounds.patience_seconds * MILLISECONDS)
            answer = self.process.stdout.readline() if is_ready else b""
        except BrokenPipeError:
            answer = b""
        if not answer.endswith(b"\n"):
            self.stop()
            return None
        return read_line(answer)

    def stop(self):
        self.process.kill()
        self.process.communicate()


def line_of(question):
    """Return a question as a line of JSON: in no time by orjson, but for what it refuses."""
    try:
        return orjson.dumps(question, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(question).encode() + b"\n"


def read_line(answer):
    """Return what a line of JSON says; half of a surrogate pair is nothing that orjson reads."""
    try:
        return orjson.loads(answer)
    except ValueError:
        return json.loads(answer)


def answer_questions(answer):
    """What the process does: bound itself, and answer each line of its input."""
    seconds, memory_bytes = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
