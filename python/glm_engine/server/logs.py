"""Logs on standard error: text on a terminal, else one JSON object a line."""

import contextlib
import io
import logging
import os
import queue
import sys
import threading
import time

import orjson
import structlog

from glm_engine.server.errors import CLIENT_CLOSED_REQUEST

QUIET_ENDPOINTS = ("/health", "/healthz", "/readyz", "/metrics", "/gauges", "/")
MOST_WAITING_BYTES = 1 << 20
SETTLE_SECONDS = 0.5
LOOK_SECONDS = 0.005
FORMATS = ("auto", "text", "json")
log = structlog.get_logger("server")


class ErrorOutput(io.RawIOBase):
    """Standard error as a file without a buffer; what nobody can take is dropped silently.

    Within `unblocked()` a thread writes, so that a reader who stands still stops nobody else. It
    has so many bytes to write at most, and what comes beyond them is dropped.
    """

    def __init__(self):
        super().__init__()
        self.text = io.TextIOWrapper(self, "utf-8", "backslashreplace", line_buffering=True)
        self.waiting = queue.SimpleQueue()
        self.lock = threading.RLock()
        self.num_taken = self.num_written = 0
        self.has_thread = False

    def writable(self):
        return True

    def write(self, data):
        data = bytes(data)
        if not self.has_thread:
            write_now(data)
            return len(data)
        with self.lock:
            if self.num_taken - self.num_written + len(data) <= MOST_WAITING_BYTES:
                self.num_taken += len(data)
                self.waiting.put(data)
        return len(data)

    def write_all(self):
        """What the thread does."""
        while True:
            data = self.waiting.get()
            write_now(data)
            self.num_written += len(data)

    def settle(self):
        """Wait a little for what has yet to be written; return whether all is."""
        until = time.monotonic() + SETTLE_SECONDS
        while self.num_written < self.num_taken and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return self.num_written == self.num_taken

    @contextlib.contextmanager
    def unblocked(self):
        """Let a thread write, all that Python writes to standard error too.

        It does so to the end of the process where the reader still stands still then.
        """
        previous, sys.stderr = sys.stderr, self.text
        threading.Thread(target=self.write_all, name="glm-log", daemon=True).start()
        self.has_thread = True
        try:
            yield
        finally:
            if self.settle():
                self.has_thread, sys.stderr = False, previous


def write_now(data):
    rest = memoryview(data)
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[os.write(sys.__stderr__.fileno(), rest) :]


error_output = ErrorOutput()


def is_text(form):
    """Say whether logs of this format, one of `FORMATS`, are text."""
    return form == "text" or (form == "auto" and sys.__stderr__.isatty())


def json_processors():
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=orjson.dumps),
    ]


def text_processors():
    from glm_engine.core.console import can_dim
    from glm_engine.server import log_text

    return log_text.processors(can_dim(sys.__stderr__))


def configure(level, form="json"):
    """Send this package's and uvicorn's logs through one renderer."""
    number = logging.getLevelNamesMapping()[level.upper()]
    rest = text_processors() if is_text(form) else json_processors()
    structlog.configure(
        processors=[structlog.processors.add_log_level, *rest],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(error_output),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [StructuredHandler()]
    root.setLevel(max(number, logging.WARNING))


class StructuredHandler(logging.Handler):
    """Hands records of the standard library's logging to structlog."""

    def emit(self, record):
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def log_visit(visit):
    """Log a request that has ended, at the level that `level_of` says."""
    log.log(level_of(visit), "request", **visit.as_fields())


def level_of(visit):
    """Return the level of a request: a warning if it was refused or failed.

    Requests for the page, for health and for metrics are of the level debug, or info if they were
    refused. A client that closed the connection is of the level info.
    """
    if visit.endpoint in QUIET_ENDPOINTS:
        return logging.DEBUG if visit.reason is None else logging.INFO
    is_refused = visit.status >= 400 and visit.status != CLIENT_CLOSED_REQUEST
    return logging.WARNING if is_refused else logging.INFO
