"""What is learnt from a stream of server-sent events as its bytes arrive.

An event that carries text is recognised by its bytes and counted; only the few others (the role,
the usage, an error) are parsed as JSON.
"""

import re
from array import array

import orjson

TEXT = re.compile(rb'"(?:text|content|reasoning|reasoning_content|arguments)":\s?"[^"]')
USAGE = re.compile(rb'"usage":\s?\{')
COUNTS = ("prompt_tokens", "completion_tokens")
FIELD, END = b"data:", b"[DONE]"


class TokenStream:
    """The answer of one streaming request. Times are monotonic seconds."""

    def __init__(self):
        self.rest = b""
        self.first = self.last = None
        self.gaps = array("d")
        self.usage = None
        self.error = None
        self.is_done = False

    def take(self, piece, now):
        """Read a piece of the body that arrived at `now`, cut anywhere."""
        lines = (self.rest + piece if self.rest else piece).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            is_text = TEXT.search(line)
            if is_text:
                self.count(now)
            if line.startswith(FIELD) and (not is_text or USAGE.search(line)):
                self.read(line[len(FIELD) :].strip())

    def count(self, now):
        """One more event with text."""
        if self.first is None:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now

    def read(self, data):
        """An event without text or with usage: the end, an error, or nothing of interest."""
        if data == END:
            self.is_done = True
            return
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            event = None
        if not isinstance(event, dict):
            self.error = f"an event that is no JSON object: {data[:80]!r}"
            return
        if event.get("error"):
            self.error = message_of(event)
        self.usage = usage_of(event) or self.usage

    @property
    def num_events(self):
        return 0 if self.first is None else 1 + len(self.gaps)

    def failure(self):
        """Why a stream that has ended is not a whole answer, or None."""
        if self.error:
            return "error in the stream", self.error
        if not self.is_done and self.rest.removeprefix(FIELD).strip() != END:
            return "cut off", "the stream ended without [DONE]"
        return None


class WholeAnswer:
    """The answer of one request that does not stream."""

    first = last = error = None
    num_events = 0

    def __init__(self):
        self.pieces = []
        self.gaps = array("d")
        self.usage = None

    def take(self, piece, now):
        del now
        self.pieces.append(piece)

    def failure(self):
        try:
            self.usage = usage_of(orjson.loads(b"".join(self.pieces)))
        except (orjson.JSONDecodeError, AttributeError):
            return "no JSON", f"the answer is no JSON object: {b''.join(self.pieces)[:80]!r}"
        return None


def usage_of(event):
    """The token counts of an answer by name; None where it does not say how long it is."""
    usage = event.get("usage")
    if not isinstance(usage, dict) or type(usage.get("completion_tokens")) is not int:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = {name: usage.get(name) for name in COUNTS} | {"cached_tokens": cached}
    return {name: count if type(count) is int else 0 for name, count in counts.items()}


def message_of(event):
    """The message of OpenAI's error object, or its text where it has none."""
    error = event.get("error")
    return str(error.get("message", error) if isinstance(error, dict) else error)
