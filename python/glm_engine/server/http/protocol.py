"""One TCP connection: uvicorn's protocol with bounds on headers and on the number of connections.

A connection on which no request runs is idle. Bytes that come then begin the time in which the
headers of the next request must come, whatever these bytes are. While one runs, others may come and
wait: what comes is read on, so that a client that goes is noticed.
"""

import asyncio
import resource
import sys
from typing import TYPE_CHECKING, Any, Protocol

from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.request_record import UNKNOWN, address_of
from glm_engine.server.http.streaming import ABORT
from glm_engine.server.server_settings import FREE_BODY_BYTES, MAX_HEADERS, MAX_PIPELINED

if TYPE_CHECKING:
    from glm_engine.server.server_settings import Settings


FILES_BESIDE = 64


class Refusal(Protocol):
    def __call__(self, error: ApiError, headers: Any, **known: Any) -> bytes:
        """Record an error with what is known of its request; return the bytes that answer it."""


class Http1Parser(HttpRequestParser):
    """Reads every request as HTTP/1, whatever it asks to upgrade to (RFC 9110, 7.8).

    llhttp leaves off after the headers of such a request; they are read again without `Upgrade`,
    and after them the body.
    """

    def __init__(self, connection: "Connection") -> None:
        self.connection = connection
        self.begin()

    def begin(self) -> None:
        """Expect the first byte of a request, whatever was read before."""
        super().__init__(self.connection)
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: Any) -> None:
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
                return
            except HttpParserUpgrade as left_off:
                if not self.asks_for_upgrade():
                    raise
                (num_read,) = left_off.args
            head = self.plain_head()
            self.begin()
            super().feed_data(head)
            rest = rest[num_read:]

    def asks_for_upgrade(self) -> bool:
        """Say whether `Upgrade` is why the request has no body here, and not CONNECT."""
        return self.should_upgrade() and self.get_method() != b"CONNECT"

    def plain_head(self) -> bytes:
        """Return the headers that were read last, without `Upgrade`."""
        version = self.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.get_method(), self.connection.url, version)]
        headers = self.connection.headers
        lines += [b"%s: %s" % header for header in headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


def fault_of(error: BaseException | None) -> str:
    """Return what the parser's error says, or the callback's that it passes on; "" for none."""
    cause = error.__context__ if error is not None else None
    return str(cause or error or "").rstrip(".")


def unframed(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """Return an application whose answers end with the connection: HTTP/1.0 knows no chunks."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_unframed(message: Message) -> None:
            cycle.chunked_encoding = False
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_unframed)

    return answer


class Connection(HttpToolsProtocol):
    """A connection whose headers must come within a time and a size.

    The bounds are set by `bounded`; `idle` holds the idle connections, the longest idle first.
    `running` is the request that was begun last, `cycle` the one that came last. Once it is lost it
    refers to no request: memory is free without the garbage collector.
    """

    header_seconds = 15.0
    max_header_bytes = 65536
    max_connections = 4096
    refusal_of: Refusal
    full_error: ApiError
    idle: "dict[Connection, bool]"
    running: RequestResponseCycle | None = None
    parser: Http1Parser
    url = b""
    header_timer: asyncio.TimerHandle | None = None
    header_bytes = 0
    num_headers = 0
    spare_bytes = 0
    num_fed = 0
    is_in_headers = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parser = Http1Parser(self)

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= self.max_connections and not self.make_room():
            self.refuse(transport, self.full_error)
            return
        super().connection_made(transport)
        self.idle[self] = True
        self.expect_headers()

    def make_room(self) -> bool:
        """Break the connection off that is idle for longest; False where none is.

        One whose last answer is still on its way goes only where there is no other.
        """
        oldest = next(iter(self.idle), None)
        if oldest is None:
            return False
        have_sent = (one for one in self.idle if not one.transport.get_write_buffer_size())
        chosen = next(have_sent, oldest)
        chosen.abort()
        chosen.forget()
        return True

    def refuse(self, transport: asyncio.Transport, error: ApiError) -> None:
        transport.write(self.recorded(transport, error))
        transport.close()

    def recorded(self, transport: asyncio.Transport, error: ApiError) -> bytes:
        """Record a refusal with what is known of its request; return the bytes that tell it."""
        known = {"client": address_of(get_remote_addr(transport)), **self.request_line()}
        return self.refusal_of(error, self.server_state.default_headers, **known)

    def request_line(self) -> dict[str, str]:
        """Return method and path as far as they came, without the query."""
        if not self.url:
            return {"method": UNKNOWN, "path": UNKNOWN}
        path = self.url.partition(b"?")[0].decode("latin-1")
        return {"method": self.parser.get_method().decode(), "path": path}

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; an answer that is being sent ends where it is."""
        fault = fault_of(sys.exc_info()[1])
        message = f"invalid HTTP request: {fault}" if fault else msg
        error = ApiError(400, message, code="invalid_http")
        if self.running and self.is_answering() and self.running.response_started:
            self.recorded(self.transport, error)
            self.transport.close()
        else:
            self.refuse(self.transport, error)

    def forget(self) -> None:
        self.idle.pop(self, None)
        self.connections.discard(self)
        self.stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.transport is not None:
            self.forget()
            self.leave_running()
            super().connection_lost(exc)
        self.running = None
        for name in ("scope", "cycle"):
            setattr(self, name, None)
        self.pipeline.clear()

    def is_answering(self) -> bool:
        return self.running is not None and not self.running.response_complete

    def leave_running(self) -> None:
        """Tell the request that runs that its client has gone."""
        if self.running and self.is_answering():
            self.running.disconnected = True
            self.running.message_event.set()

    def expect_headers(self) -> None:
        """Begin their time and size; the read in which they begin is not all theirs."""
        self.is_in_headers = True
        self.header_bytes = -self.num_fed
        self.num_headers = 0
        self.start_timer()

    def start_timer(self) -> None:
        if self.header_timer is None:
            self.header_timer = self.loop.call_later(self.header_seconds, self.time_out)

    def time_out(self) -> None:
        """Break the connection off; headers that came in part were a request, which is recorded."""
        if self.is_in_headers and self.num_fed and self.transport is not None:
            message = f"the request headers did not arrive within {self.header_seconds:g} s"
            self.recorded(self.transport, ApiError(408, message, code="header_timeout"))
        self.abort()

    def stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            return
        self.num_fed = len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.is_in_headers:
            self.header_bytes += len(data)
            if self.header_bytes > self.max_header_bytes:
                self.send_400_response(
                    f"request headers are larger than {self.max_header_bytes} bytes"
                )
        else:
            self.spare_bytes -= len(data)
            self.check_body()

    def check_body(self) -> None:
        """Refuse chunks and trailers that are more than headers may be and the body is."""
        if self.spare_bytes < 0:
            self.send_400_response("the request body is sent in too many small chunks")
        elif self.cycle.response_complete:
            self.start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions: Any = {ABORT: self.abort}
        self.scope["extensions"] = extensions
        self.expect_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; a trailer counts as one and is dropped (RFC 9110, 6.5.1)."""
        self.num_headers += 1
        if self.num_headers > MAX_HEADERS:
            raise ConnectionError(f"the request has more than {MAX_HEADERS} headers")
        if self.is_in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.parser.asks_for_upgrade():
            return
        if self.size_of_head() > self.max_header_bytes:
            raise ConnectionError(f"the headers are larger than {self.max_header_bytes} bytes")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ConnectionError(f"the client pipelined more than {MAX_PIPELINED} requests")
        self.spare_bytes = self.max_header_bytes + self.num_fed
        self.is_in_headers = False
        self.stop_timer()
        self.idle.pop(self, None)
        super().on_headers_complete()
        self.flow.resume_reading()

    def size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        is_framed = cycle.scope["http_version"] >= "1.1"
        framed: Any = app if is_framed else unframed(app, cycle)
        super()._start_asgi_task(cycle, framed)

    def on_body(self, body: bytes) -> None:
        self.spare_bytes += 2 * len(body)
        super().on_body(body)
        if sum(len(cycle.body) for cycle, _ in self.pipeline) > FREE_BODY_BYTES:
            raise ConnectionError(
                f"the bodies of pipelined requests exceed {FREE_BODY_BYTES} bytes"
            )

    def on_message_complete(self) -> None:
        if not self.parser.asks_for_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self.idle[self] = True

    def abort(self) -> None:
        if self.transport is not None:
            self.leave_running()
            self.transport.abort()


def bounded(settings: "Settings", refusal_of: Refusal) -> type[Connection]:
    """Return the connection class of these settings.

    `refusal_of` records an `ApiError` with the fields of a record that are known, and returns the
    bytes that answer it, with these headers too.
    """
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    retry = {"retry-after": str(settings.retry_after_seconds)}
    message = "the server has too many open connections"
    bounds = {
        "header_seconds": settings.header_seconds,
        "max_header_bytes": settings.max_header_bytes,
        "max_connections": max(1, min(settings.max_connections, most_files - FILES_BESIDE)),
        "refusal_of": staticmethod(refusal_of),
        "full_error": ApiError(429, message, code="server_full", headers=retry),
        "idle": {},
    }
    return type("BoundedConnection", (Connection,), bounds)
