"""Child processes: workers that call functions, `glm` commands, and servers."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from glm_engine.core.errors import BadInputError, GlmError

ROOT = Path(__file__).resolve().parents[2]
GLM = (sys.executable, "-m", "glm_engine")
START_SECONDS, END_SECONDS, POLL_SECONDS = 1800, 120, 0.1
SHOWN_CHARACTERS = 2000
Answer = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


class WorkerError(BadInputError):
    """What a function said was wrong, in a process of its own."""


class CommandError(GlmError):
    """A `glm` command failed, or a server did not start."""


def child_environment(**variables: str) -> dict[str, str]:
    """This process's environment with this checkout's tools and Python in front."""
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def set_variables(variables: dict[str, str]) -> None:
    os.environ.update(variables)


def answered(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a function returns; its `GlmError` as one that any process can read."""
    try:
        return function(*arguments, **named)
    except GlmError as error:
        raise WorkerError(str(error)) from None


class Worker(ProcessPoolExecutor):
    """A process of its own, with these environment variables, that calls functions."""

    def __init__(self, **variables: str) -> None:
        super().__init__(1, get_context("spawn"), set_variables, (variables,))

    def ask(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the function returns there; raises `WorkerError` with its `GlmError`."""
        return self.submit(partial(answered, function, *arguments, **named)).result()


def ask_once(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What a function returns in a process that does nothing else."""
    with Worker() as worker:
        return worker.ask(function, *arguments, **named)


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
