"""Client processes that share the requests: they start together and end with their parent.

Over a pipe, a worker reports that it is ready, takes its job, reports that it has the job, waits
for the start, and sends its outcome. Anything else that it receives, or the end of its parent,
interrupts it.
"""

import ctypes
import math
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NoReturn

from glm_engine.core.bounded_process import clean_environment
from glm_engine.core.errors import GlmError
from glm_engine.load.records import Outcome
from glm_engine.load.target import Target
from glm_engine.load.worker import Change, Job, ignore_interrupts, run_job
from glm_engine.load.workload import Ask

LOOK_SECONDS = 0.1
READY_SECONDS, STOP_SECONDS, PIPE_SECONDS = 120, 30, 60
PR_SET_PDEATHSIG = 1
READY, START, STOP = "ready", "start", "stop"
Counts = Sequence["ctypes.Array[ctypes.c_uint64]"]


class ProcessLostError(GlmError):
    """A worker ended before it started to send."""


def run_asks(
    target: Target,
    asks: Sequence[Ask],
    max_concurrency: int | None,
    timeout: float,
    num_workers: int = 1,
    on_change: Change = lambda _: None,
) -> list[Outcome]:
    """Run asks in this process or in several; returns the outcome of each.

    It starts no more processes than the number of requests that may be in flight.
    """
    num_workers = min(num_workers, max_concurrency or num_workers, len(asks) or 1)
    whole = Job(target, tuple(asks), max_concurrency, timeout)
    if num_workers == 1:
        return [run_job(whole, on_change)]
    jobs = [part(whole, number, num_workers) for number in range(num_workers)]
    with noted_interrupts() as interrupts, started(num_workers) as (pipes, counts):
        outcomes = run_together(jobs, pipes, interrupts, counter(counts, on_change))
    if interrupts:
        ignore_interrupts()
        outcomes[0].is_interrupted = True
    return outcomes


def part(job: Job, number: int, count: int) -> Job:
    """Every `count`-th ask, and as large a part of the concurrency."""
    limit = job.max_concurrency
    mine = None if limit is None else len(range(number, limit, count))
    return replace(job, asks=job.asks[number::count], max_concurrency=mine)


@contextmanager
def noted_interrupts() -> Iterator[list[bool]]:
    """Give a list to which each Ctrl-C adds an entry, in place of its usual effect."""
    interrupts: list[bool] = []
    previous = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN if interrupts else previous)


@contextmanager
def started(count: int) -> Iterator[tuple[list[Connection], Counts]]:
    """Give pipes to as many processes, and their counts of sent and of ended requests.

    Ctrl-C does not reach the processes; they are killed when the block ends.
    """
    context = get_context("spawn")
    pipes: list[Connection] = []
    processes: list[SpawnProcess] = []
    try:
        with only_clean_variables():
            resource_tracker.ensure_running()
            counts = [context.RawArray("Q", count) for _ in range(2)]
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            for number in range(count):
                mine, its = context.Pipe()
                given = (its, os.getpid(), counts, number)
                process = context.Process(target=serve_parent, args=given, daemon=True)
                process.start()
                its.close()
                limit_waiting(mine)
                pipes.append(mine)
                processes.append(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield pipes, counts
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for process in processes:
            process.kill()
            process.join()


def counter(counts: Counts, on_change: Change) -> Callable[[], None]:
    """Return a function that tells `on_change` of what was sent or ended since its last call."""
    seen = [0, 0]

    def look() -> None:
        for at, change in enumerate((1, -1)):
            total = sum(counts[at])
            for _ in range(total - seen[at]):
                on_change(change)
            seen[at] = total

    return look


@contextmanager
def only_clean_variables() -> Iterator[None]:
    """Give processes that start in this block an environment without secrets."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(clean_environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)


def limit_waiting(pipe: Connection) -> None:
    """Let no write to a pipe, and no read of what has begun, wait for longer than PIPE_SECONDS."""
    with socket.socket(fileno=os.dup(pipe.fileno())) as both_ways:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            both_ways.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", PIPE_SECONDS, 0))


def run_together(
    jobs: Sequence[Job],
    pipes: Sequence[Connection],
    interrupts: Sequence[bool],
    look: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Start the jobs together and return their outcomes; `look` is called while they run.

    The outcome of a lost worker has the number of its asks.
    """
    gather_ready(pipes, interrupts)
    for pipe, job in zip(pipes, jobs, strict=True):
        with suppress(OSError):
            pipe.send(job)
    gather_ready(pipes, interrupts)
    began = time.monotonic()
    tell(pipes, START)
    outcomes = gather(pipes, interrupts, lambda pending: tell(pending, STOP), look=look)
    return [
        outcome or Outcome(began, num_lost=len(job.asks), is_interrupted=bool(interrupts))
        for job, outcome in zip(jobs, outcomes, strict=True)
    ]


def gather_ready(pipes: Sequence[Connection], interrupts: Sequence[bool]) -> None:
    def end(_pending: Sequence[Connection]) -> NoReturn:
        raise KeyboardInterrupt

    if None in gather(pipes, interrupts, end, READY_SECONDS):
        raise ProcessLostError("a client process ended before it started sending requests")


def gather(
    pipes: Sequence[Connection],
    interrupts: Sequence[bool],
    on_interrupt: Callable[[Sequence[Connection]], None],
    seconds: float = math.inf,
    look: Callable[[], None] = lambda: None,
) -> list[Any]:
    """One thing from each pipe, None from one that ends or is silent for so many seconds.

    An interruption is passed on once, and leaves them STOP_SECONDS.
    """
    got: dict[Connection, Any] = dict.fromkeys(pipes)
    pending, is_told = list(pipes), False
    until = time.monotonic() + seconds
    while pending and time.monotonic() < until:
        if interrupts and not is_told:
            is_told = True
            on_interrupt(pending)
            until = time.monotonic() + STOP_SECONDS
        ready = connection.wait(pending, LOOK_SECONDS)
        for pipe in [one for one in pending if one in ready]:
            pending.remove(pipe)
            with suppress(EOFError, OSError):
                got[pipe] = pipe.recv()
        look()
    return [got[pipe] for pipe in pipes]


def tell(pipes: Sequence[Connection], word: str) -> None:
    for pipe in pipes:
        with suppress(OSError):
            pipe.send(word)


def serve_parent(pipe: Connection, parent: int, counts: Counts, number: int) -> None:
    """Run a job when told to, count its requests, and end when the parent ends."""

    def count(change: int) -> None:
        counts[change < 0][number] += 1

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        pipe.send(READY)
        job = pipe.recv()
        pipe.send(READY)
        pipe.recv()
        outcome = run_job(job, count, stop=pipe)
        os.set_blocking(pipe.fileno(), True)
        pipe.send(outcome)
