"""One HTTP request on its way through the server, and what its log line will say."""

import re
import secrets
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.types import Send

if TYPE_CHECKING:
    from glm_engine.server.choices import Choice

ID_BYTES = 16
GIVEN_ID = re.compile(rb"[ -~]{1,128}")
UNKNOWN = "-"
CUT = " [cut] "
MAX_PATH_CHARACTERS = 256
MAX_REASON_CHARACTERS = 512
current: "ContextVar[RequestRecord | None]" = ContextVar("record", default=None)


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id that a client or a router gave its request, or one of our own."""
    given = next((value for name, value in headers if name == b"x-request-id"), b"").strip()
    return given.decode() if GIVEN_ID.fullmatch(given) else secrets.token_hex(ID_BYTES)


def address_of(client: Sequence[Any] | None) -> str:
    """Return the address of a client as HOST:PORT, from the pair that a socket gives."""
    if not client:
        return UNKNOWN
    host, port = client[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shortened(text: str, most: int) -> str:
    """Return a text that a client may have written itself, cut in its middle where it is long."""
    if len(text) <= most:
        return text
    half = (most - len(CUT)) // 2
    return text[:half] + CUT + text[-half:]


@dataclass(slots=True)
class RequestRecord:
    """What is known of a request so far; times are monotonic seconds.

    `reason` says why the request was refused or its answer cut off.

    `send` is the connection's own ASGI `send`: chunks of a stream that has begun go to it and pass
    none of the layers between.
    """

    endpoint: str
    send: Send | None = None
    request_id: str = field(default_factory=lambda: secrets.token_hex(ID_BYTES))
    began: float = field(default_factory=time.monotonic)
    status: int = 0
    api_key: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    finish_reason: str | None = None
    choices: "list[Choice]" = field(default_factory=list)
    answer_bytes: int = 0
    method: str = UNKNOWN
    path: str = UNKNOWN
    client: str = UNKNOWN
    reason: str | None = None

    def take_tokens(self, count: int, now: float) -> None:
        self.completion_tokens += count
        self.last_token_at = now
        if self.first_token_at is None:
            self.first_token_at = now

    def time_to_first_token(self) -> float | None:
        return None if self.first_token_at is None else self.first_token_at - self.began

    def decode_seconds(self) -> float:
        """Return the time behind the first token."""
        return (self.last_token_at or 0.0) - (self.first_token_at or 0.0)

    def decode_rate(self) -> float | None:
        """Tokens per second after the first, or None."""
        seconds = self.decode_seconds()
        return (
            (self.completion_tokens - 1) / seconds
            if seconds and self.completion_tokens > 1
            else None
        )

    def origin(self) -> dict[str, str]:
        """Return what tells which request a log line is about."""
        return {
            "request_id": self.request_id,
            "method": self.method,
            "path": shortened(self.path, MAX_PATH_CHARACTERS),
            "client": self.client,
        }

    def draft_fields(self) -> dict[str, int]:
        """Return the draft tokens of choices that the engine ended; nothing without any."""
        drafted = sum(choice.num_draft_tokens for choice in self.choices)
        accepted = sum(choice.num_accepted_tokens for choice in self.choices)
        return {"draft_tokens": drafted, "accepted_draft_tokens": accepted} if drafted else {}

    def as_fields(self) -> dict[str, Any]:
        """Return what a log line holds, without what was never known."""
        first = self.time_to_first_token()
        rate = self.decode_rate()
        fields = {
            **self.origin(),
            "endpoint": self.endpoint,
            "status": self.status,
            "reason": self.reason and shortened(self.reason, MAX_REASON_CHARACTERS),
            "seconds": round(time.monotonic() - self.began, 4),
            "api_key": self.api_key,
            "finish_reason": self.finish_reason,
            "ttft_ms": None if first is None else round(first * 1000, 2),
            "tokens_per_second": None if rate is None else round(rate, 1),
        }
        if self.prompt_tokens:
            fields["prompt_tokens"] = self.prompt_tokens
            fields["cached_tokens"] = self.cached_tokens
            fields["completion_tokens"] = self.completion_tokens
        fields |= self.draft_fields()
        return {name: value for name, value in fields.items() if value is not None}
