"""Event streams that fail or stall on the way, without a socket."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from glm_engine.server.anthropic.message_events import MessageStream
from glm_engine.server.http.streaming import ABORT, EventStream
from tests.server.test_generation import give, make_job

SECRET = "a path of this machine"
PATHS = {EventStream: "/v1/completions", MessageStream: "/v1/messages"}


class Presenter:
    """Gives the text of each piece, and fails at the word that it is told."""

    def __init__(self, fails_at=None):
        self.fails_at = fails_at

    def opening(self):
        return b""

    def event(self, _choice, piece):
        if self.fails_at and self.fails_at in piece.text:
            raise KeyError(SECRET)
        return piece.text.encode()

    def closing(self):
        if self.fails_at == "closing":
            raise KeyError(SECRET)
        return b"closing"


class Exchange:
    """A connection that keeps what is sent, and takes nothing from the body `stalls_at` on."""

    def __init__(self, stalls_at=None):
        self.stalls_at = stalls_at
        self.sent = []
        self.is_stalled = asyncio.Event()
        self.is_aborted = asyncio.Event()

    async def send(self, message):
        if self.stalls_at and message.get("body") == self.stalls_at:
            self.is_stalled.set()
            await self.is_aborted.wait()
            return
        self.sent.append(message)

    async def receive(self):
        await self.is_aborted.wait()
        return {"type": "http.disconnect"}

    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


async def begun(exchange, presenter, kind=EventStream):
    """Return a stream over one choice that has said a word, the job, its bridge, and its task."""
    job, bridge = make_job(num_choices=1)
    job.submit()
    stream = kind(SimpleNamespace(jobs=set(), streams=set()), job, presenter)
    scope = {"path": PATHS[kind], "extensions": {ABORT: exchange.is_aborted.set}}
    task = asyncio.create_task(stream(scope, exchange.receive, exchange.send))
    give(job, job.choices[0], [4])
    await asyncio.sleep(0.01)
    return stream, job, bridge, task


def last_event(body):
    return json.loads(body.rpartition(b"data: ")[2])


@pytest.mark.parametrize("kind", list(PATHS))
@pytest.mark.parametrize("place", ["cd", "closing"])
def test_an_exception_after_the_stream_began_is_its_last_event(kind, place) -> None:
    async def run():
        exchange = Exchange()
        _, job, bridge, task = await begun(exchange, Presenter(place), kind)
        give(job, job.choices[0], [5], ("stop_token", 0, ""))
        await task
        assert exchange.body().startswith(b"ab")
        error = last_event(exchange.body())["error"]
        assert job.record.request_id in error["message"]
        assert SECRET.encode() not in exchange.body()
        assert exchange.sent[-1]["more_body"] is False
        assert job.record.status == 500
        assert bridge.live == []

    asyncio.run(run())


def test_a_reader_that_stalls_at_the_end_is_broken_off() -> None:
    async def run():
        exchange = Exchange(stalls_at=b"closing")
        stream, job, _, task = await begun(exchange, Presenter())
        give(job, job.choices[0], [], ("stop_token", 0, ""))
        await exchange.is_stalled.wait()
        stream.look_after(time.monotonic(), 30, 15)
        assert not exchange.is_aborted.is_set()
        stream.look_after(time.monotonic() + 31, 30, 15)
        assert exchange.is_aborted.is_set()
        await task
        assert job.record.status == 499

    asyncio.run(run())
