"""Sends requests when they are due and records the answers, in this process."""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import orjson
import uvloop

from glm_engine.core.console import printable
from glm_engine.load.http_client import OK, ConnectionLostError, Connections
from glm_engine.load.records import COMPLETED, Outcome, Record
from glm_engine.load.sse import Failure, TokenStream, WholeAnswer, message_of
from glm_engine.load.target import Target
from glm_engine.load.workload import Ask

START_SECONDS = 0.05
Change = Callable[[int], object]


@dataclass(frozen=True)
class Job:
    """What a worker needs: where to, the asks, and the limits."""

    target: Target
    asks: tuple[Ask, ...]
    max_concurrency: int | None
    timeout: float


class Worker:
    """Runs a job on the event loop that it is created in; a readable file `stop` interrupts it.

    `on_change` takes 1 when a request is sent and -1 when it ends.
    """

    def __init__(
        self,
        job: Job,
        on_change: Change = lambda _: None,
        stop: Connection | None = None,
    ) -> None:
        self.job, self.on_change, self.stop = job, on_change, stop
        self.connections = Connections(job.target.address)
        self.places = asyncio.Semaphore(job.max_concurrency or len(job.asks) or 1)
        self.outcome = Outcome(time.monotonic() + START_SECONDS)
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Outcome:
        """Send every request when it is due; returns the outcome when all have ended."""
        began = time.process_time()
        loop = asyncio.get_running_loop()
        self.main = cast(asyncio.Task[Any], asyncio.current_task())
        previous = signal.signal(signal.SIGINT, lambda *_: self.interrupt())
        if self.stop:
            loop.add_reader(self.stop, self.interrupt)
        try:
            await self.send_all()
            await asyncio.gather(*self.tasks)
        except asyncio.CancelledError:
            await self.cancel_all()
        finally:
            ends_deaf = self.outcome.is_interrupted
            signal.signal(signal.SIGINT, signal.SIG_IGN if ends_deaf else previous)
            if self.stop:
                loop.remove_reader(self.stop)
            self.connections.close()
        self.outcome.cpu_seconds = time.process_time() - began
        return self.outcome

    def interrupt(self) -> None:
        """End the requests in flight; only the first call has an effect."""
        if not self.outcome.is_interrupted:
            self.outcome.is_interrupted = True
            self.main.get_loop().call_soon_threadsafe(self.main.cancel)

    async def send_all(self) -> None:
        for ask in self.job.asks:
            due = self.outcome.start + ask.due
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            await self.places.acquire()
            task = asyncio.create_task(self.send(ask, due))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def cancel_all(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def send(self, ask: Ask, due: float) -> None:
        """One request from its sending to its end; never raises but when cancelled."""
        target = self.job.target
        answer = TokenStream(ask.max_tokens) if target.is_streaming else WholeAnswer()
        record = Record(due, ask.max_tokens, time.monotonic())
        self.outcome.records.append(record)
        self.on_change(1)
        try:
            async with asyncio.timeout(self.job.timeout):
                status, refusal = await self.connections.exchange(target.message(ask), answer)
            record.outcome, record.message = judge(status, refusal, answer)
        except TimeoutError:
            record.outcome, record.message = (
                "timed out",
                f"no complete answer within {self.job.timeout:g} s",
            )
        except OSError as error:
            record.outcome, record.message = name_of(error), str(error)
        finally:
            self.places.release()
            fill(record, answer)
            self.on_change(-1)


def judge(status: int, refusal: bytes, answer: TokenStream | WholeAnswer) -> Failure:
    """Return the outcome of a complete answer, and its error message."""
    if status == OK:
        return answer.failure() or (COMPLETED, "")
    try:
        return str(status), message_of(orjson.loads(refusal))
    except (orjson.JSONDecodeError, AttributeError):
        return str(status), printable(refusal[:80].decode("utf-8", "replace"))


def name_of(error: OSError) -> str:
    if isinstance(error, ConnectionLostError):
        return "connection lost"
    return "connection refused" if isinstance(error, ConnectionRefusedError) else "cannot connect"


def fill(record: Record, answer: TokenStream | WholeAnswer) -> None:
    """Take over the times and counts of an answer."""
    record.ended = time.monotonic()
    answer.arrived.fill(record)
    record.has_usage = answer.usage is not None
    for name, count in (answer.usage or {}).items():
        setattr(record, name, count)


def run_job(
    job: Job, on_change: Change = lambda _: None, stop: Connection | None = None
) -> Outcome:
    """Run a job in this process."""

    async def run() -> Outcome:
        return await Worker(job, on_change, stop).run()

    return uvloop.run(run())


def ignore_interrupts() -> None:
    """After the first Ctrl-C a second must not take away the figures that are there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
