"""One TCP connection: uvicorn's protocol with bounds on headers and on the number of connections.

A connection on which no request runs is idle. Bytes that come then begin the time in which the
headers of the next request must come, whatever these bytes are.
"""

import resource

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from glm_engine.server.errors import ApiError, body_of
from glm_engine.server.parser import PlainParser

ABORT = "glm.abort"
MAX_PIPELINED = 16
MAX_HEADERS = 128
FILES_BESIDE = 64
REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
    b"retry-after: %d\r\nconnection: close\r\n\r\n%s"
)


def abort_of(scope):
    """Return the function that breaks this request's connection off at once."""
    return scope.get("extensions", {}).get(ABORT, lambda: None)


async def wait_for_disconnect(receive):
    while (await receive())["type"] != "http.disconnect":
        pass


class Connection(HttpToolsProtocol):
    """A connection whose headers must come within a time and a size.

    The bounds are set by `bounded`; `idle` holds the idle connections, the longest idle first.
    Once it is lost it refers to no request: memory is free without the garbage collector.
    """

    header_seconds = 15.0
    max_header_bytes = 65536
    max_connections = 4096
    refusal = b""
    idle = None
    header_timer = None
    header_bytes = 0
    spare_bytes = 0
    num_fed = 0
    is_in_headers = True

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.parser = PlainParser(self)

    def connection_made(self, transport):
        if len(self.connections) >= self.max_connections and not self.make_room():
            transport.write(self.refusal)
            transport.close()
            return
        super().connection_made(transport)
        self.idle[self] = True
        self.expect_headers()

    def make_room(self):
        """Break the connection off that is idle for longest; False where none is."""
        oldest = next(iter(self.idle), None)
        if oldest is None:
            return False
        oldest.abort()
        oldest.forget()
        return True

    def forget(self):
        self.idle.pop(self, None)
        self.connections.discard(self)
        self.stop_timer()

    def connection_lost(self, exc):
        if self.transport is not None:
            self.forget()
            super().connection_lost(exc)
        self.scope = self.cycle = None

    def expect_headers(self):
        self.is_in_headers = True
        self.header_bytes = 0
        self.start_timer()

    def start_timer(self):
        if self.header_timer is None:
            self.header_timer = self.loop.call_later(self.header_seconds, self.abort)

    def stop_timer(self):
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def data_received(self, data):
        if self.transport is None:
            return
        self.num_fed = len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.is_in_headers:
            self.header_bytes += len(data)
            if self.header_bytes > self.max_header_bytes:
                self.send_400_response(f"Headers are longer than {self.max_header_bytes} bytes.")
        else:
            self.spare_bytes -= len(data)
            self.check_body()

    def check_body(self):
        """Refuse chunks and trailers that are more than headers may be and the body is."""
        if self.spare_bytes < 0:
            self.send_400_response("The body is sent in chunks that are too small.")
        elif self.cycle.response_complete:
            self.start_timer()

    def on_message_begin(self):
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.abort}
        self.expect_headers()

    def on_header(self, name, value):
        if len(self.headers) >= MAX_HEADERS:
            raise ConnectionError(f"more than {MAX_HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self):
        if self.parser.asks_for_upgrade():
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ConnectionError(f"{MAX_PIPELINED} requests of this connection wait already")
        self.spare_bytes = self.max_header_bytes + self.num_fed
        self.is_in_headers = False
        self.stop_timer()
        self.idle.pop(self, None)
        super().on_headers_complete()

    def on_body(self, body):
        self.spare_bytes += 2 * len(body)
        super().on_body(body)

    def on_message_complete(self):
        if not self.parser.asks_for_upgrade():
            super().on_message_complete()

    def on_response_complete(self):
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self.idle[self] = True

    def abort(self):
        if self.transport is not None:
            self.transport.abort()


def bounded(settings):
    """Return the connection class of these settings."""
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    seconds = settings.retry_after_seconds
    error = ApiError(429, "the server is full of connections", code="server_full")
    body = body_of(error, "/")
    bounds = {
        "header_seconds": settings.header_seconds,
        "max_header_bytes": settings.max_header_bytes,
        "max_connections": max(1, min(settings.max_connections, most_files - FILES_BESIDE)),
        "refusal": REFUSAL % (len(body), seconds, body),
        "idle": {},
    }
    return type("BoundedConnection", (Connection,), bounds)
