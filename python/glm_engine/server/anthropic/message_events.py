"""Errors in Anthropic's form."""

import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import BaseModel

from glm_engine.server.choices import Delta, Turn, deltas_of
from glm_engine.server.http import api_errors
from glm_engine.server.http.api_errors import STATUSES, TooLongError
from glm_engine.server.http.streaming import EventStream
from glm_engine.text.dialogue import CallArguments, CallBegin, CallEnd, Content, Reasoning

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.choices import Choice, TextDelta
    from glm_engine.server.http.api_errors import ApiError
    from glm_engine.server.http.streaming import Text
    from glm_engine.server.jobs import Job
    from glm_engine.text.conversation import Json
    from glm_engine.text.dialogue import DialogueParser


PREFIX = "/v1/messages"
TYPES = {**api_errors.TYPES, 500: "api_error", 503: "overloaded_error"}
THREAD = "thread"
UNTHREADED = {"error_code": "thread_unsupported_request", "unsupported": [THREAD]}
DELTA = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"%s","%s":%s}}\n\n'
)
FIELDS: dict[type[Delta], tuple[bytes, bytes]] = {
    Content: (b"text_delta", b"text"),
    Reasoning: (b"thinking_delta", b"thinking"),
    CallArguments: (b"input_json_delta", b"partial_json"),
}
PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class ErrorDetail(BaseModel):
    type: str
    message: str
    details: dict[str, Any] | None = None


class ErrorAnswer(BaseModel):
    type: Literal["error"]
    error: ErrorDetail


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "model": ErrorAnswer} for status, text in STATUSES.items()
}


def error_message(error: "ApiError") -> str:
    """Return the message; clients read two numbers in that of a prompt which is too long."""
    if not isinstance(error, TooLongError):
        return error.detail
    numbers = f"{error.num_tokens} tokens > {error.most_tokens} maximum"
    least = "" if error.is_counted else " (at least, by its number of characters)"
    return f"prompt is too long: {numbers}{least}"


def anthropic_body(error: "ApiError") -> "Json":
    """Return the body of an error.

    Clients look in `details` for what tells them to send a whole conversation in place of a thread
    that the server holds.
    """
    kind = TYPES.get(error.status_code, "invalid_request_error")
    told: Json = {"type": kind, "message": error_message(error)}
    if error.param == THREAD:
        told["details"] = UNTHREADED
    return {"type": "error", "error": told}


class MessageTurn(Turn):
    """is_cut_short: the context leaves less room than `max_tokens`."""

    def __init__(
        self,
        parser: "DialogueParser",
        shows_reasoning: bool = True,
        takes_one_call: bool = False,
        is_cut_short: bool = False,
    ) -> None:
        super().__init__(parser, shows_reasoning, takes_one_call)
        self.is_cut_short = is_cut_short

    def stop(self, choice: "Choice") -> tuple[str, str | None]:
        """Return stop_reason and stop_sequence of a choice that has ended."""
        if self.is_over:
            return "tool_use", None
        found = choice.matcher.found if choice.matcher else None
        if found is not None:
            return "stop_sequence", found
        if self.asks_for_calls:
            return "tool_use", None
        if choice.finish_reason == "length":
            return ("model_context_window_exceeded" if self.is_cut_short else "max_tokens"), None
        return "end_turn", None


def event(name: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps({"type": name, **fields}))


def message_of(service: "Service", job: "Job") -> "Json":
    """Return the message as it is before anything was said."""
    return {
        "id": f"msg_{job.record.request_id}",
        "type": "message",
        "role": "assistant",
        "model": service.model_name,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def usage_of(job: "Job") -> dict[str, int]:
    """Return the counts; tokens that came out of the prefix cache are counted apart."""
    record = job.record
    return {
        "input_tokens": record.prompt_tokens - record.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": record.cached_tokens,
        "output_tokens": job.choices[0].num_tokens,
    }


def empty_block(delta: Delta) -> "Json":
    """Return the block that a delta opens."""
    if type(delta) is CallBegin:
        return {"type": "tool_use", "id": tool_use_id(), "name": delta.name, "input": {}}
    if type(delta) is Reasoning:
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def tool_use_id() -> str:
    return f"toolu_{uuid.uuid4().hex[:24]}"


def signature_of(thought: str) -> str:
    """Return a digest of a thought: clients want something there, and send it back unread."""
    return hashlib.sha256(thought.encode("utf-8", "surrogatepass")).hexdigest()


class EventWriter:
    """Turns deltas into the events of content blocks, of which one is open at a time."""

    index = -1
    open: type[Delta] | None = None
    thoughts: list[str]

    def write(self, delta: Delta) -> bytes:
        kind = type(delta)
        if isinstance(delta, CallEnd):
            return self.close()
        if isinstance(delta, CallBegin):
            return self.close() + self.begin(delta)
        opening = b"" if self.open is kind else self.close() + self.begin(delta)
        if kind is Reasoning:
            self.thoughts.append(delta.text)
        name, field = FIELDS[kind]
        return opening + DELTA % (self.index, name, field, orjson.dumps(delta.text))

    def begin(self, delta: Delta) -> bytes:
        self.index += 1
        self.open = CallArguments if type(delta) is CallBegin else type(delta)
        self.thoughts = []
        return event("content_block_start", index=self.index, content_block=empty_block(delta))

    def close(self) -> bytes:
        """End the open block, if there is one; a thought ends with its signature."""
        if self.open is None:
            return b""
        signed = b""
        if self.open is Reasoning:
            text = orjson.dumps(signature_of("".join(self.thoughts)))
            signed = DELTA % (self.index, b"signature_delta", b"signature", text)
        self.open = None
        return signed + event("content_block_stop", index=self.index)


class BlockCollector:
    """Puts the blocks of a whole answer together; a call that did not end is left out."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []
        self.texts: list[list[str]] = []
        self.kind: type[Delta] | None = None
        self.open_call: Json | None = None

    def take(self, delta: Delta) -> None:
        kind = type(delta)
        if isinstance(delta, CallEnd):
            self.open_call = None
            return
        if kind is CallBegin or (kind is not self.kind and kind is not CallArguments):
            self.blocks.append(empty_block(delta))
            self.texts.append([])
        self.kind = kind
        if isinstance(delta, CallBegin):
            self.open_call = self.blocks[-1]
        else:
            self.texts[-1].append(delta.text)

    def content(self) -> "list[Json]":
        for block, texts in zip(self.blocks, self.texts, strict=True):
            fill(block, "".join(texts))
        return [block for block in self.blocks if block is not self.open_call]


def fill(block: "Json", text: str) -> None:
    """Write the text of a block, and the signature of a thought."""
    kind = block["type"]
    if kind == "tool_use":
        block["input"] = orjson.Fragment(text)
        return
    block[kind] = text
    if kind == "thinking":
        block["signature"] = signature_of(text)


class MessageStream(EventStream):
    """A stream whose errors, and pings while nothing comes, are events of their own names."""

    def sign_of_life(self) -> "Text":
        return PING

    def failure(self, error: "ApiError", _path: str) -> "Text":
        return b"event: error\ndata: %s\n\n" % orjson.dumps(anthropic_body(error))


class MessagePresenter:
    """The events or the body of an answer."""

    def __init__(self, service: "Service", job: "Job", turn: MessageTurn) -> None:
        self.job = job
        self.turn = turn
        self.message = message_of(service, job)
        self.writer = EventWriter()
        self.collector = BlockCollector()

    def event(self, choice: "Choice", text_delta: "TextDelta") -> bytes:
        return b"".join(map(self.writer.write, deltas_of(self.job, self.turn, choice, text_delta)))

    def opening(self) -> bytes:
        """Return what begins the message; what the prefix cache gives is told at its end."""
        message = {**self.message, "usage": {**usage_of(self.job), "output_tokens": 0}}
        return event("message_start", message=message) + PING

    def closing(self) -> bytes:
        """Return what ends the message: its last block, why it stopped, the counts."""
        reason, sequence = self.turn.stop(self.job.choices[0])
        stop = {"stop_reason": reason, "stop_sequence": sequence}
        ending = event("message_delta", delta=stop, usage=usage_of(self.job))
        return self.writer.close() + ending + event("message_stop")

    def take(self, choice: "Choice", text_delta: "TextDelta") -> None:
        for delta in deltas_of(self.job, self.turn, choice, text_delta):
            self.collector.take(delta)

    def body(self) -> bytes:
        reason, sequence = self.turn.stop(self.job.choices[0])
        return orjson.dumps(
            {
                **self.message,
                "content": self.collector.content(),
                "stop_reason": reason,
                "stop_sequence": sequence,
                "usage": usage_of(self.job),
            }
        )
