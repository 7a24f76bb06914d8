"""Answers of a server that speaks OpenAI's chat interface."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import orjson

from glm_engine.load.http_client import OK, Address, Connections
from glm_engine.load.sse import MOST_BODY, EventStream, usage_of
from glm_engine.load.target import CHAT, ServerError, refusal_of, unreachable
from glm_engine.server.openai.chat_messages import MAX_CALLS
from glm_engine.terminal.answer_settings import Settings
from glm_engine.terminal.ending import Ending
from glm_engine.terminal.history import Message
from glm_engine.terminal.session import Take
from glm_engine.text.dialogue import CallArguments, CallBegin, Content, Delta, Reasoning

SENT = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")


class ChatStream(EventStream):
    """The deltas of one streamed answer, until they are taken.

    arrived: set whenever bytes came, be they a comment.
    """

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.deltas: list[Delta] = []
        self.call_numbers: list[object] = []
        self.num_bytes = 0
        self.finish_reason: str | None = None
        self.usage: dict[str, int] | None = None
        self.first: float | None = None
        self.last: float | None = None

    def take(self, piece: bytes, now: float) -> None:
        num_deltas = len(self.deltas)
        super().take(piece, now)
        if len(self.deltas) > num_deltas:
            self.first, self.last = now if self.first is None else self.first, now
        self.num_bytes += len(piece)
        if self.num_bytes > MOST_BODY:
            self.excess = f"the answer is longer than {MOST_BODY} bytes"
        self.arrived.set()

    def taken(self) -> list[Delta]:
        """Return the deltas that came since the last call."""
        deltas, self.deltas = self.deltas, []
        return deltas

    def take_event(self, event: dict[str, Any]) -> None:
        self.usage = usage_of(event) or self.usage
        choices = event.get("choices")
        choice = object_in(choices[0] if isinstance(choices, list) and choices else None)
        self.finish_reason = text_in(choice, "finish_reason") or self.finish_reason
        delta = object_in(choice.get("delta"))
        thought = text_in(delta, "reasoning_content") or text_in(delta, "reasoning")
        self.add(Reasoning, thought)
        self.add(Content, text_in(delta, "content"))
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            self.take_call(object_in(call))

    def add(self, kind: type[Content | Reasoning], text: str) -> None:
        if text:
            self.deltas.append(kind(text))

    def take_call(self, call: dict[str, Any]) -> None:
        """Begin a call, or go on with the one that began last."""
        function, number = object_in(call.get("function")), call.get("index", 0)
        if number not in self.call_numbers:
            self.call_numbers.append(number)
            self.deltas.append(CallBegin(len(self.call_numbers) - 1, text_in(function, "name")))
        if number != self.call_numbers[-1] or len(self.call_numbers) > MAX_CALLS:
            self.excess = (
                f"expected at most {MAX_CALLS} tool calls, each completed before the next starts"
            )
        elif text := text_in(function, "arguments"):
            self.deltas.append(CallArguments(len(self.call_numbers) - 1, text))


def object_in(value: object) -> dict[str, Any]:
    """Return a JSON object, an empty one where the value is none."""
    return value if isinstance(value, dict) else {}


def text_in(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def ending_of(stream: ChatStream, begin: float) -> Ending:
    """Return the ending of a stream whose question was sent at `begin`."""
    if stream.first is None or stream.last is None:
        return Ending(stream.finish_reason, time.monotonic() - begin)
    seconds, usage = stream.last - begin, stream.usage or {}
    return Ending(
        stream.finish_reason,
        seconds,
        stream.first - begin,
        usage.get("completion_tokens"),
        usage.get("prompt_tokens", 0),
        usage.get("cached_tokens", 0),
    )


class ServerBackend:
    """Asks a server, one question at a time, each on a connection of its own.

    patience_seconds: the longest silence of an answer.
    """

    def __init__(self, address: Address, model: str, patience_seconds: float) -> None:
        self.address, self.model = address, model
        self.patience_seconds = patience_seconds
        self.title = f"{model} at {address.url}"

    def body(self, messages: Sequence[Message], settings: Settings) -> bytes:
        sent = [{name: one[name] for name in SENT if one.get(name) is not None} for one in messages]
        body: dict[str, Any] = {"model": self.model, "messages": sent, "stream": True}
        body |= settings.sampling
        if settings.is_verbose:
            body["stream_options"] = {"include_usage": True}
        if settings.tools:
            body["tools"] = settings.tools
        if settings.thinks is not None:
            body["chat_template_kwargs"] = {"enable_thinking": settings.thinks}
        return orjson.dumps(body)

    def answer(self, messages: Sequence[Message], settings: Settings, take: Take) -> Ending:
        """Give the deltas of the answer to `take`; returns its `Ending`."""
        message = self.address.message("POST", CHAT, self.body(messages, settings))
        return asyncio.run(self.stream(message, take))

    async def stream(self, message: bytes, take: Take) -> Ending:
        answer, connections = ChatStream(), Connections(self.address)
        begin = time.monotonic()
        exchange = asyncio.ensure_future(connections.exchange(message, answer))
        exchange.add_done_callback(lambda _: answer.arrived.set())
        try:
            while not exchange.done():
                async with asyncio.timeout(self.patience_seconds):
                    await answer.arrived.wait()
                answer.arrived.clear()
                take(answer.taken())
            status, content = exchange.result()
        except OSError as error:
            raise unreachable(self.address, CHAT, error, self.patience_seconds) from error
        finally:
            exchange.cancel()
            connections.close()
        if status != OK:
            raise refusal_of(self.address, CHAT, status, content)
        if failure := answer.failure():
            raise ServerError(f"{self.address.url}: {CHAT}: {': '.join(failure)}")
        return ending_of(answer, begin)

    def close(self) -> None:
        """Nothing stays open between questions."""
