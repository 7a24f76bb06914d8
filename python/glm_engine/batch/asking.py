"""One request to an ASGI application in this process, without a socket."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]
REQUEST_ID = b"x-request-id"


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    async def take(self, message: Message) -> None:
        """Take a message of the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = list(message.get("headers", ()))
        else:
            self.pieces.append(message.get("body", b""))

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces)

    @property
    def request_id(self) -> str:
        """The id that the application gave the request."""
        found = [value for name, value in self.headers if name == REQUEST_ID]
        return found[0].decode("latin-1") if found else ""


async def ask(app: Application, path: str, body: bytes) -> Answer:
    """Return the answer to a POST of JSON; the client never closes the connection."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.get_running_loop().create_future()
        return {"type": "http.disconnect"}

    answer = Answer()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": None,
        "server": None,
    }
    await app(scope, receive, answer.take)
    return answer
