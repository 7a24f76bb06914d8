"""The server that is measured: what it serves, its vocabulary, its own figures, its requests."""

import asyncio
import errno
from dataclasses import dataclass
from typing import Any

import orjson

from glm_engine.core.errors import BadInputError, GlmError
from glm_engine.load.http_client import OK, Address, ConnectionLostError, Connections, Exchanged
from glm_engine.load.sse import WholeAnswer, is_count, message_of
from glm_engine.load.workload import (
    TEXT,
    AnyVocabulary,
    Ask,
    id_vocabulary,
    is_chat,
    word_vocabulary,
)

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ENDPOINTS = {"completions": COMPLETIONS, "chat": CHAT}
ASK_SECONDS = 30
UNAUTHORIZED, NOT_FOUND = 401, 404
MOST_OF_NAME, MOST_SHOWN = 512, 16


class ServerError(GlmError):
    """The server answered with an error, with an invalid answer, or not to the end."""


@dataclass(frozen=True)
class Target:
    """Where the requests go, and what all of them have in common."""

    address: Address
    model: str
    endpoint: str
    is_streaming: bool = True
    temperature: float = 0.0
    ignore_eos: bool = True

    def body(self, ask: Ask) -> bytes:
        """The JSON of one request."""
        body: dict[str, Any] = {"model": self.model, "max_tokens": ask.max_tokens}
        body["temperature"] = self.temperature
        if self.endpoint == "chat":
            spoken = [{"role": "user", "content": ask.prompt}]
            body["messages"] = ask.prompt if is_chat(ask.prompt) else spoken
        else:
            body["prompt"] = ask.prompt
        if self.ignore_eos:
            body |= {"ignore_eos": True, "min_tokens": ask.max_tokens}
        if self.is_streaming:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return orjson.dumps(body)

    def message(self, ask: Ask) -> bytes:
        return self.address.message("POST", ENDPOINTS[self.endpoint], self.body(ask))


def ask_server(address: Address, method: str, path: str, body: object = None) -> Exchanged:
    """One request of the set-up; returns its status and the bytes of its body."""
    answer = WholeAnswer()
    message = address.message(method, path, orjson.dumps(body) if body is not None else b"")

    async def exchange() -> Exchanged:
        connections = Connections(address)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                status, refusal = await connections.exchange(message, answer)
        finally:
            connections.close()
        return status, refusal or b"".join(answer.pieces)

    try:
        return asyncio.run(exchange())
    except OSError as error:
        raise unreachable(address, path, error, ASK_SECONDS) from error


def unreachable(address: Address, path: str, error: OSError, seconds: float) -> GlmError:
    """Return the error of an exchange that failed or took longer than so many seconds."""
    if isinstance(error, TimeoutError):
        return ServerError(f"{address.url}: {path}: no response within {seconds:g} s")
    if isinstance(error, ConnectionLostError):
        return ServerError(f"{address.url}: {path}: {error}")
    problem = f"cannot connect ({reason_of(error)}); is the server running?"
    return BadInputError(f"{address.url}: {problem}")


def reason_of(error: OSError) -> str:
    """Return why no connection could be opened, without the numbers of the system."""
    is_refused = f"[Errno {errno.ECONNREFUSED}]" in str(error)
    return "connection refused" if is_refused else error.strerror or str(error)


def refusal_of(address: Address, path: str, status: int, content: bytes) -> GlmError:
    """Return the error for an answer whose status or form is not the expected one."""
    if status == UNAUTHORIZED:
        return BadInputError(f"{address.url}: {key_problem(address)}")
    answer = object_of(content)
    said = repr(content[:80]) if answer is None else message_of(answer)
    return ServerError(f"{address.url}: {path}: status {status}: {said}")


def key_problem(address: Address) -> str:
    """Return what is wrong with the API key that a server refused, and what to do."""
    if address.api_key:
        return f"the server rejected the API key in {address.key_source}"
    return f"the server requires an API key: set {address.key_source}"


def object_of(content: bytes) -> dict[str, Any] | None:
    """Return the JSON object in these bytes, or None."""
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return answer if isinstance(answer, dict) else None


def ask_json(address: Address, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The JSON object that the server answers with; any other answer is an error."""
    status, content = ask_server(address, method, path, body)
    answer = object_of(content)
    if status != OK or answer is None:
        raise refusal_of(address, path, status, content)
    return answer


def chosen_model(address: Address, wanted: str | None = None) -> str:
    """The model to ask for: the one wanted, which must be served, or the first that is."""
    rows = ask_json(address, "GET", "/v1/models").get("data")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = [name for row in rows if isinstance(name := row.get("id"), str)]
    served = [name for name in names if len(name) <= MOST_OF_NAME and name.isprintable()]
    if wanted is None:
        if not served:
            raise ServerError(f"{address.url}: /v1/models lists no models")
        return served[0]
    if wanted not in served:
        known = ", ".join(served[:MOST_SHOWN]) or "none"
        raise BadInputError(f"{address.url}: no model {wanted!r}; available models: {known}")
    return wanted


def served_vocabulary(address: Address, model: str, endpoint: str) -> AnyVocabulary:
    """Return the vocabulary of prompts: ids of ordinary words, or words for the chat endpoint."""
    question = {"model": model, "prompt": TEXT, "add_special_tokens": False}
    tokens = ask_json(address, "POST", "/tokenize", question).get("tokens")
    if not isinstance(tokens, list) or not 0 < len(tokens) <= len(TEXT):
        raise ServerError(
            f"{address.url}: /tokenize: expected 1 to {len(TEXT)} tokens for {len(TEXT)} characters"
        )
    if not all(map(is_count, tokens)):
        raise ServerError(f"{address.url}: /tokenize: expected token ids")
    return word_vocabulary(len(tokens)) if endpoint == "chat" else id_vocabulary(tokens)
