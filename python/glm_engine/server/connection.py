"""One TCP connection: uvicorn's protocol with bounds on how headers may arrive."""

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ABORT = "glm.abort"


def abort_of(scope):
    """Return the function that breaks this request's connection off at once."""
    return scope.get("extensions", {}).get(ABORT, lambda: None)


class Connection(HttpToolsProtocol):
    """A connection whose headers must come within a time and a size.

    The two bounds are set by `bounded`.
    """

    header_seconds = 15.0
    max_header_bytes = 65536
    header_timer = None
    header_bytes = 0
    is_in_headers = True

    def connection_made(self, transport):
        super().connection_made(transport)
        self.expect_headers()

    def connection_lost(self, exc):
        self.headers_came()
        super().connection_lost(exc)

    def expect_headers(self):
        self.is_in_headers = True
        self.header_bytes = 0
        if self.header_timer is None:
            self.header_timer = self.loop.call_later(self.header_seconds, self.abort)

    def headers_came(self):
        self.is_in_headers = False
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def data_received(self, data):
        super().data_received(data)
        if self.is_in_headers and not self.transport.is_closing():
            self.header_bytes += len(data)
            if self.header_bytes > self.max_header_bytes:
                self.send_400_response(f"Headers are longer than {self.max_header_bytes} bytes.")

    def on_message_begin(self):
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.abort}
        self.expect_headers()

    def on_headers_complete(self):
        self.headers_came()
        super().on_headers_complete()

    def abort(self):
        if self.transport is not None:
            self.transport.abort()


def bounded(settings):
    """Return the connection class of these settings."""
    bounds = {
        "header_seconds": settings.header_seconds,
        "max_header_bytes": settings.max_header_bytes,
    }
    return type("BoundedConnection", (Connection,), bounds)
