"""One run of `glm load` at a server of its own, and one in an engine without a server."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.bench.processes import ROOT, child_environment
from tools.bench.serving.threads import pin

GLM = (sys.executable, "-m", "glm_engine")
READY = re.compile(r"serving \S+ on (http://[^\s\"]+)")
START_SECONDS, END_SECONDS = 600, 60
FIRST_REQUEST = ("--requests", "1", "--rate", "inf", "--prompts", "fixed:8", "--outputs", "fixed:2")


class RunFailedError(Exception):
    """A side did not do all that it was asked."""


@dataclass(frozen=True)
class Cores:
    """Which cores the engine's threads may use, and which the HTTP thread and the client."""

    engine: frozenset[int]
    http: frozenset[int]


@contextmanager
def running_server(engine_options: Sequence[str]) -> Iterator[tuple[subprocess.Popen, str]]:
    """`glm serve` on a free port: its process and URL; ended by SIGTERM."""
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            [*GLM, "serve", "--port", "0", "--log-level", "warning", *engine_options],
            cwd=ROOT,
            env=child_environment(),
            stdout=log,
            stderr=log,
        )
        try:
            yield process, wait_until_ready(process, Path(log.name))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(END_SECONDS)


def wait_until_ready(process: subprocess.Popen, log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        found = READY.search(log.read_text(encoding="utf-8"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise RunFailedError(f"glm serve is not ready: {log.read_text(encoding='utf-8')[-500:]}")


def load(arguments: Sequence[str], cores: frozenset[int] | None = None) -> dict:
    """The figures of the one rate of a `glm load`."""
    result = subprocess.run(
        [*GLM, "load", *arguments, "--json"],
        cwd=ROOT,
        env=child_environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
    )
    if result.returncode != 0:
        raise RunFailedError(f"glm load ended with status {result.returncode}")
    [point] = json.loads(result.stdout)["points"]
    if point["num_completed"] != point["num_asked"] or point["num_shorter"]:
        raise RunFailedError(f"some requests were not answered in full: {point['outcomes']}")
    return point


def at_server(requests: Sequence[str], engine_options: Sequence[str], cores: Cores | None) -> dict:
    """Figures of the requests at a server, with what its own counters grew by.

    The engine starts its threads with its first request: only then they can be pinned.
    """
    with running_server(engine_options) as (process, url):
        if cores:
            load([url, *FIRST_REQUEST])
            pin(process.pid, cores.http, cores.engine)
        return load([url, *requests, "--warm-up", "8"], cores and cores.http)


def in_engine(requests: Sequence[str], engine_options: Sequence[str], cores: Cores | None) -> dict:
    """Figures of the same requests in an engine that no server stands before."""
    allowed = cores and cores.engine | cores.http
    return load(["--engine", *engine_options, *requests, "--warm-up", "8"], allowed)
