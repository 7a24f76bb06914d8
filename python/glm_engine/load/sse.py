"""Reads a stream of server-sent events as its bytes arrive.

`TokenStream` recognises an event that carries text by its bytes and counts it; only the few others
(the role, the usage, an error) are parsed as JSON.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import orjson

from glm_engine.core.console import printable
from glm_engine.load.arrived import Arrived

TEXT = re.compile(rb'"(?:text|content|reasoning|reasoning_content|arguments)":\s?"[^"]')
USAGE = re.compile(rb'"usage":\s?\{')
COUNTS = ("prompt_tokens", "completion_tokens")
MOST_LINE, MOST_BODY, MOST_OF_MESSAGE, MOST_COUNT = 1 << 20, 1 << 24, 500, 2**31
EVENTS_PER_TOKEN, SPARE_EVENTS = 16, 1024
FIELD, END = b"data:", b"[DONE]"
Failure = tuple[str, str]


class EventStream:
    """The events of a stream that is cut anywhere, line by line.

    `excess` says why it is too much to be kept, `error` what the server said went wrong.
    """

    excess: str | None = None
    error: str | None = None
    is_done = False
    rest = b""

    def take(self, piece: bytes, now: float) -> None:
        """Read a piece of the body that arrived at `now`."""
        lines = (self.rest + piece if self.rest else piece).split(b"\n")
        self.rest = lines.pop()
        if len(self.rest) > MOST_LINE:
            self.excess = f"a line of the stream has more than {MOST_LINE} bytes"
        for line in lines:
            self.take_line(line, now)

    def take_line(self, line: bytes, _now: float) -> None:
        if line.startswith(FIELD):
            self.read(line[len(FIELD) :].strip())

    def read(self, data: bytes) -> None:
        """The end, an error, or an event for `take_event`."""
        if data == END:
            self.is_done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            event = None
        if not isinstance(event, dict):
            self.error = f"expected a JSON object in an event, got {data[:80]!r}"
            return
        if event.get("error"):
            self.error = message_of(event)
        self.take_event(event)

    def take_event(self, event: dict[str, Any]) -> None:
        raise NotImplementedError

    def failure(self) -> Failure | None:
        """Return why a stream that has ended is incomplete, or None."""
        if self.error:
            return "error in the stream", self.error
        if not self.is_done and self.rest.removeprefix(FIELD).strip() != END:
            return "cut off", "the stream ended without [DONE]"
        return None


class TokenStream(EventStream):
    """The answer of one streaming request. Times are monotonic seconds.

    Far more events with text than the `max_tokens` that were asked for are too much.
    """

    def __init__(self, max_tokens: int) -> None:
        self.most_events = EVENTS_PER_TOKEN * max_tokens + SPARE_EVENTS
        self.arrived = Arrived()
        self.usage: dict[str, int] | None = None

    def take_line(self, line: bytes, now: float) -> None:
        is_text = TEXT.search(line)
        if is_text:
            self.count(now)
        if line.startswith(FIELD) and (not is_text or USAGE.search(line)):
            self.read(line[len(FIELD) :].strip())

    def count(self, now: float) -> None:
        """One more event with text."""
        self.arrived.add(now)
        if self.arrived.num_events > self.most_events:
            self.excess = f"the stream has more than {self.most_events} events with text"

    def take_event(self, event: dict[str, Any]) -> None:
        self.usage = usage_of(event) or self.usage


class WholeAnswer:
    """The answer of one request that does not stream."""

    excess: str | None = None
    num_bytes = 0

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.arrived = Arrived()
        self.usage: dict[str, int] | None = None

    def take(self, piece: bytes, now: float) -> None:
        del now
        self.num_bytes += len(piece)
        if self.num_bytes > MOST_BODY:
            self.pieces.clear()
            self.excess = f"the answer has more than {MOST_BODY} bytes"
            return
        self.pieces.append(piece)

    def failure(self) -> Failure | None:
        try:
            self.usage = usage_of(orjson.loads(b"".join(self.pieces)))
        except (orjson.JSONDecodeError, AttributeError):
            return "invalid JSON", f"expected a JSON object, got {b''.join(self.pieces)[:80]!r}"
        return None


def usage_of(event: Mapping[str, Any]) -> dict[str, int] | None:
    """The token counts of an answer by name; None where it does not say how long it is."""
    usage = event.get("usage")
    if not isinstance(usage, dict) or not is_count(usage.get("completion_tokens")):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = {name: usage.get(name) for name in COUNTS} | {"cached_tokens": cached}
    return {name: count if is_count(count) else 0 for name, count in counts.items()}


def is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MOST_COUNT


def message_of(event: Mapping[str, Any]) -> str:
    """The message of OpenAI's error object, or its text where it has none; the beginning of it."""
    error = event.get("error")
    text = str(error.get("message", error) if isinstance(error, dict) else error)
    return printable(text[:MOST_OF_MESSAGE])
