"""JSON that holds long lists: they are rendered a few items at a time, while it is sent."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

import orjson
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from glm_engine.server.http.api_errors import (
    CLIENT_CLOSED_REQUEST,
    ApiError,
    DisconnectedError,
    body_of,
    of_unexpected,
)

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.choices import Choice, TextDelta
    from glm_engine.server.jobs import Job


Text = bytes | Iterator[bytes]
ITEMS_OF_PART = 32
LEAST_CHUNK_BYTES = 65_536
LIST_MARK = b"\0"
ABORT = "glm.abort"
log = structlog.get_logger("server")
COMMENT = b": keep-alive\n\n"
JSON_HEADERS = [(b"content-type", b"application/json")]
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Presenter(Protocol):
    """Writes an answer in an interface's form, as events or whole; a text may come in parts."""

    def opening(self) -> Text:
        """Return what begins a stream, before the first token."""

    def event(self, choice: "Choice", text_delta: "TextDelta") -> Text:
        """Return what a stream says of a text delta: text, thoughts, tool calls."""

    def closing(self) -> Text:
        """Return what ends a stream whose choices have ended."""

    def take(self, choice: "Choice", text_delta: "TextDelta") -> None:
        """Keep a text delta for the whole answer."""

    def body(self) -> Text:
        """Return the whole answer."""


class LongList:
    """A list in a value for `dumps`, given by an iterable that is read when its turn comes."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items

    def parts(self) -> Iterator[bytes]:
        """Yield the JSON of the list."""
        items, separator = iter(self.items), b""
        yield b"["
        while part := list(islice(items, ITEMS_OF_PART)):
            yield separator + orjson.dumps(part)[1:-1]
            separator = b","
        yield b"]"


def json_parts(value: object) -> Text:
    """Return the JSON of a value: bytes, or an iterator of them where a `LongList` is in it.

    Each such list has its place by a NUL, which no JSON text holds.
    """
    lists = []

    def marked(found: object) -> orjson.Fragment:
        if not isinstance(found, LongList):
            raise TypeError(f"{type(found).__name__} is not JSON serializable")
        lists.append(found)
        return orjson.Fragment(LIST_MARK)

    text = orjson.dumps(value, default=marked)
    return filled(lists, *text.split(LIST_MARK)) if lists else text


def filled(lists: list[LongList], first: bytes, *rest: bytes) -> Iterator[bytes]:
    yield first
    for one, after in zip(lists, rest, strict=True):
        yield from one.parts()
        yield after


def chunks_of(*texts: bytes | Iterable[bytes]) -> Iterator[bytes]:
    """Yield texts, each bytes or an iterator of them, in chunks; the last holds what is left."""
    gathered, size = [], 0
    for text in texts:
        for part in (text,) if isinstance(text, bytes) else text:
            gathered.append(part)
            size += len(part)
            if size >= LEAST_CHUNK_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    yield b"".join(gathered)


def abort_of(scope: Scope) -> Callable[[], None]:
    """Return the function that breaks this request's connection off at once."""
    abort: Callable[[], None] = scope.get("extensions", {}).get(ABORT, lambda: None)
    return abort


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def watched(job: "Job", receive: Receive) -> AsyncIterator[None]:
    """Abandon the job when the client goes; leave nothing on the engine at the end."""
    watch = asyncio.get_running_loop().create_task(wait_for_disconnect(receive))
    watch.add_done_callback(lambda task: None if task.cancelled() else job.abandon())
    try:
        yield
    finally:
        watch.cancel()
        job.cancel()


class JobResponse(Response):
    """An answer that runs its job while it is sent."""

    def __init__(self, service: "Service", job: "Job", presenter: Presenter) -> None:
        self.service = service
        self.job = job
        self.presenter = presenter
        self.status_code = 200
        self.background = None
        self.raw_headers = []
        self.abort: Callable[[], None] = lambda: None
        self.writing_since: float | None = None
        self.wrote_at = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.abort = abort_of(scope)
        self.service.jobs.add(self.job)
        try:
            async with watched(self.job, receive):
                await self.answer(scope["path"], send)
        except DisconnectedError:
            self.job.record.status = CLIENT_CLOSED_REQUEST
        finally:
            self.service.jobs.discard(self.job)

    async def answer(self, path: str, send: Send) -> None:
        raise NotImplementedError

    @contextmanager
    def looked_after(self) -> Iterator[None]:
        """Let a reader that stalls meanwhile be broken off."""
        self.service.streams.add(self)
        try:
            yield
        finally:
            self.service.streams.discard(self)

    async def write(self, send: Send, chunk: bytes, more_body: bool = True) -> None:
        self.writing_since = began = time.monotonic()
        await send({"type": "http.response.body", "body": chunk, "more_body": more_body})
        self.wrote_at = began
        self.writing_since = None
        if self.job.is_abandoned:
            raise DisconnectedError

    async def write_but_last(self, send: Send, chunks: Iterator[bytes]) -> bytes:
        """Write chunks one after another, others have their turn between; return the last."""
        last = next(chunks)
        for chunk in chunks:
            await self.write(send, last)
            await asyncio.sleep(0)
            last = chunk
        return last

    def look_after(self, now: float, patience_seconds: float, comment_seconds: float) -> None:
        """Break off a reader that stalls; say something to one that waits long."""
        if self.writing_since is not None:
            if now - self.writing_since > patience_seconds:
                self.break_off(f"the client read nothing for {patience_seconds:g} s")
        elif now - self.wrote_at > comment_seconds:
            self.job.inbox.wake()

    def break_off_if_writing(self) -> None:
        if self.writing_since is not None:
            self.break_off("the server is shutting down")

    def break_off(self, reason: str) -> None:
        self.job.record.reason = reason
        self.job.abandon()
        self.abort()


class WholeAnswer(JobResponse):
    """One JSON body when the job has ended; a long one is sent as rendered, without a length."""

    async def answer(self, _path: str, send: Send) -> None:
        async for text_deltas in self.job.wakes():
            for choice, text_delta in text_deltas:
                self.presenter.take(choice, text_delta)
        chunks = chunks_of(self.presenter.body())
        first, second = next(chunks), next(chunks, None)
        length = [(b"content-length", b"%d" % len(first))] if second is None else []
        headers = JSON_HEADERS + length
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with self.looked_after():
            if second is not None:
                first = await self.write_but_last(send, chain((first, second), chunks))
            await self.write(send, first, more_body=False)


class EventStream(JobResponse):
    """Server-sent events as the text becomes certain."""

    async def answer(self, path: str, send: Send) -> None:
        with self.looked_after():
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            await self.send_events(path, self.job.record.send or send)

    async def send_events(self, path: str, send: Send) -> None:
        """Send all events; an error is the last, whatever it was."""
        try:
            await self.write_all(send, self.presenter.opening())
            await self.send_deltas(send)
            closing = self.presenter.closing()
        except DisconnectedError:
            raise
        except Exception as error:
            told = error if isinstance(error, ApiError) else of_unexpected(error, self.job.record)
            self.job.record.status, self.job.record.reason = told.status_code, told.detail
            closing = self.failure(told, path)
        last = await self.write_but_last(send, chunks_of(closing))
        await self.write(send, last, more_body=False)

    async def send_deltas(self, send: Send) -> None:
        event = self.presenter.event
        async for text_deltas in self.job.wakes():
            events = [event(choice, text_delta) for choice, text_delta in text_deltas]
            await self.write_all(send, *events or [self.sign_of_life()])

    async def write_all(self, send: Send, *texts: bytes | Iterable[bytes]) -> None:
        """Write texts, each bytes or an iterator of them; nothing where they are empty."""
        last = await self.write_but_last(send, chunks_of(*texts))
        if last:
            await self.write(send, last)

    def sign_of_life(self) -> Text:
        """Return what is sent while there is nothing to say."""
        return COMMENT

    def failure(self, error: ApiError, path: str) -> Text:
        """Return the event that tells of an error after the stream has begun."""
        return b"data: " + body_of(error, path) + b"\n\n"


async def look_after_streams(service: "Service", period_seconds: float = 1.0) -> None:
    """Look after all open streams, once a period, for as long as the server runs."""
    while True:
        await asyncio.sleep(period_seconds)
        now, patience = time.monotonic(), service.admission.patience_seconds()
        for stream in list(service.streams):
            try:
                stream.look_after(now, patience, service.settings.keep_alive_comment_seconds)
            except Exception as error:
                log.error("failed to check a stream", exc_info=error)
