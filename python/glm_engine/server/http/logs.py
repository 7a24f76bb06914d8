"""Logs on standard error: text on a terminal, else one JSON object a line."""

import contextlib
import io
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, Processor

from glm_engine.core.console import printable, terminal_text

MOST_WAITING_BYTES = 1 << 20
SETTLE_SECONDS = 0.5
LOOK_SECONDS = 0.005
FORMATS = ("auto", "text", "json")
log = structlog.get_logger("server")
EXCEPTION = "exception"
BLOCK = (
    ("Model", "{model}"),
    ("Device", "{device}"),
    ("GPUs", "{gpus}"),
    ("Context length", "{context_length:,} tokens"),
    ("KV cache", "{kv_cache_tokens:,} tokens; requests at full context: {kv_cache_requests:,}"),
    ("Speculate", "{speculation}"),
    ("API", "{api}"),
    ("Page", "{page}"),
    ("API keys", "{api_keys}{key_sources}"),
)
WIDTH = 16
THROUGHPUT = (
    "Requests running: {running}, waiting: {waiting}, "
    "prompt: {prompt_tokens_per_second:,} tokens/s, "
    "generated: {generated_tokens_per_second:,} tokens/s, "
    "KV cache usage: {kv_cache_usage_percent}%, "
    "prefix cache hit rate: {prefix_cache_hit_rate_percent}%"
)
REQUEST = '{client} "{method} {path}" {status}'
SENTENCES = {
    "throughput": (THROUGHPUT, ()),
    "request": (REQUEST, ("endpoint",)),
}


class ErrorOutput(io.RawIOBase):
    """Standard error as a file without a buffer; what nobody can take is dropped silently.

    Within `unblocked()` a thread writes, so that a reader who stands still stops nobody else. It
    has so many bytes to write at most, and what comes beyond them is dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self.text = io.TextIOWrapper(
            cast("BinaryIO", self), "utf-8", "backslashreplace", line_buffering=True
        )
        self.waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.lock = threading.RLock()
        self.num_taken = self.num_written = 0
        self.has_thread = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        data = bytes(data)
        if not self.has_thread:
            write_now(data)
            return len(data)
        with self.lock:
            if self.num_taken - self.num_written + len(data) <= MOST_WAITING_BYTES:
                self.num_taken += len(data)
                self.waiting.put(data)
        return len(data)

    def write_all(self) -> None:
        """What the thread does."""
        while True:
            data = self.waiting.get()
            write_now(data)
            self.num_written += len(data)

    def settle(self) -> bool:
        """Wait a little for what has yet to be written; return whether all is."""
        until = time.monotonic() + SETTLE_SECONDS
        while self.num_written < self.num_taken and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return self.num_written == self.num_taken

    @contextlib.contextmanager
    def unblocked(self) -> Iterator[None]:
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


def standard_error() -> TextIO:
    assert sys.__stderr__, "the process has a standard error"
    return sys.__stderr__


def write_now(data: bytes) -> None:
    rest = memoryview(data)
    with contextlib.suppress(OSError):
        while rest:
            rest = rest[os.write(standard_error().fileno(), rest) :]


error_output = ErrorOutput()


def is_text(form: str) -> bool:
    """Say whether logs of this format, one of `FORMATS`, are text."""
    return form == "text" or (form == "auto" and standard_error().isatty())


def json_processors() -> list[Processor]:
    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=orjson.dumps),
    ]


def configure(level: str, form: str = "json") -> None:
    """Send this package's and uvicorn's logs through one renderer."""
    number = logging.getLevelNamesMapping()[level.upper()]
    rest = text_processors() if is_text(form) else json_processors()
    structlog.configure(
        processors=[structlog.processors.add_log_level, *rest],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", error_output)),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [StructuredHandler()]
    root.setLevel(max(number, logging.WARNING))


class StructuredHandler(logging.Handler):
    """Hands records of the standard library's logging to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def start_block(fields: dict[str, Any]) -> str:
    """Return the lines that say what is served."""
    told = fields | device_texts(fields) | key_texts(fields) | {"speculation": speculation(fields)}
    rows = [(name, form.format(**told)) for name, form in BLOCK]
    return "".join(f"  {name:<{WIDTH}}{printable(text)}\n" for name, text in rows)


def device_texts(fields: dict[str, Any]) -> dict[str, str]:
    """Return the texts of the device and of the GPUs."""
    name, count = fields["device_name"], fields["world_size"]
    if fields["gpus"]:
        return {"device": "CUDA", "gpus": f"{count} x {name}"}
    device = name if count == 1 else f"{count} CPU ranks, {name.removeprefix('CPU, ')}"
    return {"device": device, "gpus": "none"}


def speculation(fields: dict[str, Any]) -> str:
    """Return how drafts are made, and whether the prediction layer is loaded for it."""
    stated = fields["speculate"]
    if fields["num_prediction_layers"]:
        return f"{stated} (prediction layer loaded)"
    return f"{stated} (no prediction layer)" if stated == "auto" else stated


def key_texts(fields: dict[str, Any]) -> dict[str, str]:
    """Return the texts of the number of API keys and of where they come from."""
    sources = ", ".join(fields["api_keys_from"])
    return {
        "api_keys": fields["api_keys"] or "none",
        "key_sources": f" (from {sources})" if sources else "",
    }


def as_sentence(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Put the fields of an event that has a sentence into it; the others follow it."""
    form, implied = SENTENCES.get(event["event"], (None, ()))
    if form is None:
        return event
    used = {name: event[name] for name in event if f"{{{name}" in form}
    rest = {name: value for name, value in event.items() if name not in (*used, *implied)}
    return {**rest, "event": form.format(**used)}


def without_controls(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Spell out what a terminal would obey: clients write paths and parts of messages."""
    return {name: spelt_out(name, value) for name, value in event.items()}


def spelt_out(name: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    return terminal_text(value) if name == EXCEPTION else printable(value)


def encoded(_logger: Any, _method: str, text: Any) -> bytes:
    return str(text).encode("utf-8", "backslashreplace")


def text_processors() -> list[Processor]:
    """Return what makes a line of an event, after its level is known."""
    from structlog.dev import ConsoleRenderer, plain_traceback

    from glm_engine.core.console import can_dim

    return [
        structlog.processors.TimeStamper(fmt="%m-%d %H:%M:%S", utc=False),
        structlog.processors.format_exc_info,
        as_sentence,
        without_controls,
        ConsoleRenderer(
            colors=can_dim(standard_error()),
            pad_event_to=0,
            pad_level=False,
            sort_keys=False,
            exception_formatter=plain_traceback,
        ),
        encoded,
    ]
