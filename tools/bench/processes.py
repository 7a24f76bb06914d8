"""Child processes: workers that answer questions in JSON lines, `glm` commands, and servers."""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

from glm_engine.core.errors import BadInputError, GlmError

ROOT = Path(__file__).resolve().parents[2]
GLM = (sys.executable, "-m", "glm_engine")
START_SECONDS, END_SECONDS, POLL_SECONDS = 1800, 120, 0.1
SHOWN_CHARACTERS = 2000
Answer = dict[str, Any]


class WorkerError(BadInputError):
    """A child process ended before it answered, or refused the question."""


class CommandError(GlmError):
    """A `glm` command failed, or a server did not start."""


def child_environment(**variables: str) -> dict[str, str]:
    """This process's environment with this checkout's tools and Python in front."""
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


class Worker:
    """A process that answers questions with a function of a module, one JSON object a line."""

    def __init__(self, module: str, function: str, **variables: str):
        self.name = f"{module}.{function}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.processes", module, function],
            cwd=ROOT,
            env=child_environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, **question: object) -> Answer:
        """The answer; raises `WorkerError` with the function's `GlmError`, or the exit status."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status = self.process.wait(END_SECONDS)
            raise WorkerError(f"{self.name} ended with status {status} before it answered")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer


def ask_once(module: str, function: str, **question: object) -> Answer:
    """One answer of a process of its own."""
    with Worker(module, function) as worker:
        return worker.ask(**question)


class Answering(Protocol):
    """A function that a worker answers with."""

    def __call__(self, **question: Any) -> Answer:
        """The answer to the fields of a question."""


def answer_questions(answer: Answering) -> None:
    """The worker's side: `answer(**question)` for each line of standard input."""
    for line in sys.stdin:
        try:
            told = answer(**json.loads(line))
        except GlmError as error:
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)


def run_glm(*words: str, cores: frozenset[int] | None = None) -> str:
    """What a `glm` command prints; it runs on `cores` where they are given."""
    done = subprocess.run(
        [*GLM, *words],
        cwd=ROOT,
        env=child_environment(),
        capture_output=True,
        text=True,
        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
    )
    if done.returncode != 0:
        raise CommandError(f"glm {words[0]} ended with status {done.returncode}: {done.stderr}")
    return done.stdout


@contextmanager
def running_server(
    words: Sequence[str], log: Path, find_url: Callable[[], str | None]
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server's process and URL, once `find_url` knows the URL; SIGTERM ends it."""
    with log.open("wb") as sink:
        process = subprocess.Popen(
            words, cwd=ROOT, env=child_environment(), stdout=sink, stderr=sink
        )
    try:
        yield process, wait_for_url(process, log, find_url)
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_url(
    process: subprocess.Popen[bytes], log: Path, find_url: Callable[[], str | None]
) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if (url := find_url()) is not None:
            return url
        time.sleep(POLL_SECONDS)
    text = log.read_text(encoding="utf-8", errors="replace")[-SHOWN_CHARACTERS:]
    raise CommandError(f"the server is not ready; its log {log} ends with:\n{text}")


if __name__ == "__main__":
    answer_questions(getattr(importlib.import_module(sys.argv[1]), sys.argv[2]))
