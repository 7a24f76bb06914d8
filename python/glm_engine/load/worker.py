"""Sends requests when they are due and records what comes; in this process or in several."""

import asyncio
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import orjson
import uvloop

from glm_engine.load.connection import OK, ConnectionLostError, Connections
from glm_engine.load.records import COMPLETED, Outcome, Record
from glm_engine.load.sse import TokenStream, WholeAnswer, message_of

START_SECONDS = 0.05
PROCESS_START_SECONDS = 120
BARRIERS = []


@dataclass(frozen=True)
class Job:
    """What a worker needs: where to, the asks, and the limits."""

    target: object
    asks: tuple
    max_concurrency: int | None
    timeout: float


class Worker:
    """Runs a job on the event loop that it is created in."""

    def __init__(self, job, on_end=lambda: None):
        self.job, self.on_end = job, on_end
        self.connections = Connections(job.target.address)
        self.places = asyncio.Semaphore(job.max_concurrency or len(job.asks) or 1)
        self.outcome = Outcome(time.monotonic() + START_SECONDS)
        self.tasks = set()

    async def run(self):
        """Send every request when it is due; returns the outcome when all have ended."""
        began = time.process_time()
        loop, main = asyncio.get_running_loop(), asyncio.current_task()
        loop.add_signal_handler(signal.SIGINT, main.cancel)
        try:
            await self.send_all()
            await asyncio.gather(*self.tasks)
        except asyncio.CancelledError:
            self.outcome.is_interrupted = True
            await self.cancel_all()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            self.connections.close()
        self.outcome.cpu_seconds = time.process_time() - began
        return self.outcome

    async def send_all(self):
        for ask in self.job.asks:
            due = self.outcome.start + ask.due
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            await self.places.acquire()
            task = asyncio.create_task(self.send(ask, due))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def cancel_all(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def send(self, ask, due):
        """One request from its sending to its end; never raises but when cancelled."""
        target = self.job.target
        answer = TokenStream() if target.is_streaming else WholeAnswer()
        record = Record(due, ask.max_tokens, time.monotonic())
        self.outcome.records.append(record)
        try:
            async with asyncio.timeout(self.job.timeout):
                status, refusal = await self.connections.exchange(target.message(ask), answer)
            record.outcome, record.message = judge(status, refusal, answer)
        except TimeoutError:
            record.outcome, record.message = "timed out", f"no end in {self.job.timeout:g} s"
        except OSError as error:
            record.outcome, record.message = name_of(error), str(error)
        finally:
            self.places.release()
            fill(record, answer)
            self.on_end()


def judge(status, refusal, answer):
    """The outcome of an answer that came to its end, and what was said of it."""
    if status == OK:
        return answer.failure() or (COMPLETED, "")
    try:
        return str(status), message_of(orjson.loads(refusal))
    except (orjson.JSONDecodeError, AttributeError):
        return str(status), refusal[:80].decode("utf-8", "replace")


def name_of(error):
    if isinstance(error, ConnectionLostError):
        return "connection lost"
    return "connection refused" if isinstance(error, ConnectionRefusedError) else "cannot connect"


def fill(record, answer):
    """Take over the times and counts of an answer."""
    record.ended = time.monotonic()
    record.first, record.last, record.gaps = answer.first, answer.last, answer.gaps
    record.num_events = answer.num_events
    usage = answer.usage or {}
    record.prompt_tokens = usage.get("prompt_tokens") or 0
    record.completion_tokens = usage.get("completion_tokens") or 0
    record.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def run_job(job, on_end=lambda: None):
    """Run a job in this process."""

    async def run():
        return await Worker(job, on_end).run()

    return uvloop.run(run())


def run_asks(target, asks, max_concurrency, timeout, num_workers=1, on_end=lambda: None):
    """Run asks in one process or several; returns the outcome of each.

    No more processes are started than requests may be under way.
    """
    num_workers = min(num_workers, max_concurrency or num_workers, len(asks) or 1)
    whole = Job(target, tuple(asks), max_concurrency, timeout)
    if num_workers == 1:
        return [run_job(whole, on_end)]
    context = get_context("spawn")
    barrier = context.Barrier(num_workers, timeout=PROCESS_START_SECONDS)
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ProcessPoolExecutor(num_workers, context, keep_barrier, (barrier,)) as pool:
            parts = [part(whole, number, num_workers) for number in range(num_workers)]
            return list(pool.map(run_part, parts))
    finally:
        signal.signal(signal.SIGINT, previous)


def keep_barrier(barrier):
    BARRIERS.append(barrier)


def run_part(job):
    """Run a job in a process of its own, from when the others are ready too."""
    BARRIERS[0].wait()
    return run_job(job)


def part(job, number, count):
    """Every `count`-th ask, and as large a part of the concurrency."""
    limit = job.max_concurrency
    mine = None if limit is None else len(range(number, limit, count))
    return replace(job, asks=job.asks[number::count], max_concurrency=mine)
