"""Who is let in: nobody while draining, no more than engine and queue can hold, under known names.

Who owns a domain can let it stand for 127.0.0.1, and a browser then takes answers of a server on
the loopback for that page's own (DNS rebinding). An address in `Host` cannot be had that way.
"""

import asyncio
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from starlette.types import Message, Receive

from glm_engine.server.http.api_errors import CLIENT_CLOSED_REQUEST, ApiError
from glm_engine.server.http.streaming import wait_for_disconnect
from glm_engine.server.server_settings import FREE_BODY_BYTES

if TYPE_CHECKING:
    from glm_engine.server.http.request_record import RequestRecord
    from glm_engine.server.server_settings import Settings


LOOPBACK = "localhost"
ANY = "*"
HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:]*))(?::[0-9]*)?")
ALWAYS_OPEN = ("/health", "/readyz", "/metrics", "/gauges", "/page/", "/openapi.json")
MAX_LENGTH_DIGITS = 19


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task, "requests are answered in tasks"
    return task


class AdmissionControl:
    """Knows the requests inside, and closes.

    `inside` holds each one's record and receive by the task that answers it. A place is taken by
    those whose body is whole: who sends slowly keeps nobody out.
    """

    def __init__(self, most_inside: int, settings: "Settings") -> None:
        self.most_inside = most_inside
        self.settings = settings
        self.inside: dict[asyncio.Task[Any], tuple[RequestRecord, BoundedReceive]] = {}
        self.num_working = 0
        self.bodies_bytes = 0
        self.is_draining = False
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    @property
    def num_inside(self) -> int:
        return len(self.inside)

    def is_guarded(self, path: str) -> bool:
        return path != "/" and not path.startswith(ALWAYS_OPEN)

    def check(self) -> None:
        """Refuse with 503 while draining, with 429 where too many are inside."""
        if self.is_draining:
            raise self.draining_error()
        self.check_room()

    def check_room(self) -> None:
        if self.num_working >= self.most_inside:
            raise self.full_error(f"{self.num_working} requests are running or waiting")

    def full_error(self, what: str) -> ApiError:
        headers = {"retry-after": str(self.settings.retry_after_seconds)}
        return ApiError(
            429, f"the server is at capacity: {what}", code="server_full", headers=headers
        )

    def draining_error(self) -> ApiError:
        retry = str(self.settings.retry_after_seconds)
        headers = {"retry-after": retry, "connection": "close"}
        return ApiError(503, "the server is shutting down", code="draining", headers=headers)

    def start_work(self) -> None:
        """Take a place for a request whose body is whole."""
        self.check_room()
        self.num_working += 1

    def hold_bytes(self, count: int) -> None:
        """Count so many bytes more, or fewer, that bodies and answers hold in memory."""
        if self.bodies_bytes + count > max(self.bodies_bytes, self.settings.max_bodies_bytes):
            raise self.full_error(f"request bodies and answers use {self.bodies_bytes} bytes")
        self.bodies_bytes += count

    def hold_answer(self, count: int) -> None:
        """Count so many bytes, which this request's answer will take, until the request leaves."""
        record, _ = self.inside[own_task()]
        self.hold_bytes(count)
        record.answer_bytes += count

    def enter(self, record: "RequestRecord", receive: "BoundedReceive") -> None:
        self.inside[own_task()] = (record, receive)
        self.is_empty.clear()

    def leave(self) -> None:
        record, receive = self.inside.pop(own_task())
        receive.forget()
        self.hold_bytes(-record.answer_bytes)
        self.num_working -= receive.is_working
        if not self.inside:
            self.is_empty.set()

    async def wait(self, future: asyncio.Future[Any]) -> None:
        """Wait for a future, which others may wait for, unless this request's client goes."""
        _, receive = self.inside[own_task()]
        going = asyncio.get_running_loop().create_task(wait_for_disconnect(receive))
        try:
            await asyncio.wait((future, going), return_when=asyncio.FIRST_COMPLETED)
        finally:
            going.cancel()
        if not future.done():
            raise ApiError(
                CLIENT_CLOSED_REQUEST,
                "the client closed the connection before the answer was complete",
            )

    def refuse_half_sent(self) -> None:
        """Cancel the requests whose body is still on its way; their answer is 503."""
        self.cancel(lambda _visit, receive: not receive.is_whole)

    def refuse_unanswered(self) -> None:
        """Cancel the requests whose answer has not begun; it is 503."""
        self.cancel(lambda record, _receive: not record.status)

    def cancel(self, is_chosen: "Callable[[RequestRecord, BoundedReceive], bool]") -> None:
        for task, request in self.inside.items():
            if is_chosen(*request):
                task.cancel()

    def patience_seconds(self) -> float:
        """Return for how long a reader may stall: a drain lets it hold half of its time."""
        usual = self.settings.stalled_write_seconds
        return min(usual, self.settings.drain_seconds / 2) if self.is_draining else usual

    async def drain(self, seconds: float) -> bool:
        """Let nobody in and wait for those inside; False when the time was over first."""
        self.is_draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self.is_empty.wait(), seconds)
        return self.is_empty.is_set()


def too_large(settings: "Settings") -> ApiError:
    message = (
        f"the request body is larger than the limit of {settings.max_body_bytes} bytes "
        "(--max-body-size)"
    )
    return ApiError(413, message, code="body_too_large")


def declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the content-length that a request states, or 0; ApiError 400 for too many digits."""
    text = next((value for name, value in headers if name == b"content-length"), b"0")
    if len(text) > MAX_LENGTH_DIGITS:
        message = (
            f"expected a content-length of at most {MAX_LENGTH_DIGITS} digits, got {len(text)}"
        )
        raise ApiError(400, message, code="invalid_http")
    return int(text) if text.isdigit() else 0


class BoundedReceive:
    """ASGI `receive` that refuses a body that is too long or comes too slowly.

    What it has beyond `FREE_BODY_BYTES` counts among what all bodies may hold, until it is read.
    """

    def __init__(self, receive: Receive, settings: "Settings", admission: AdmissionControl) -> None:
        self.receive = receive
        self.settings = settings
        self.admission = admission
        self.num_bytes = 0
        self.num_held = 0
        self.is_whole = False
        self.is_working = False
        self.until = asyncio.get_running_loop().time() + settings.body_seconds

    async def __call__(self) -> Message:
        if self.is_whole:
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self.receive()
        except TimeoutError:
            text = f"the request body did not arrive within {self.settings.body_seconds:g} s"
            raise ApiError(408, text, code="body_timeout") from None
        if message["type"] == "http.disconnect":
            text = "the client closed the connection before sending the whole request body"
            raise ApiError(CLIENT_CLOSED_REQUEST, text)
        self.num_bytes += len(message.get("body", b""))
        if self.num_bytes > self.settings.max_body_bytes:
            raise too_large(self.settings)
        self.hold(max(0, self.num_bytes - FREE_BODY_BYTES))
        self.is_whole = not message.get("more_body", False)
        if self.is_whole:
            self.admission.start_work()
            self.is_working = True
        return message

    def hold(self, num_bytes: int) -> None:
        self.admission.hold_bytes(num_bytes - self.num_held)
        self.num_held = num_bytes

    def forget(self) -> None:
        """Count the body no more: it has been read, or is not wanted."""
        self.hold(0)


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Say whether a name or an address can be reached from this machine alone."""
    found = socket.getaddrinfo(host, None)
    return all(ip_address(address[0]).is_loopback for *_, address in found)


def name_of(host: str) -> str:
    """Return the name or address of a Host header, without its port; "" where it is no host."""
    found = HOST.fullmatch(host)
    return (found[1] or found[2] or "").removesuffix(".").lower() if found else ""


class AllowedHosts:
    """The names that are taken; all of them where the server is open to a network or has keys."""

    def __init__(self, settings: "Settings", has_keys: bool) -> None:
        named = {name.lower() for name in settings.allowed_hosts}
        is_private = is_loopback(settings.host) and not has_keys
        self.names = {*named, settings.host, LOOPBACK} if named or is_private else {ANY}

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise ApiError 403 for a Host that is no address and not among the names, 400 for two."""
        hosts = [value.decode("latin-1") for field, value in headers if field == b"host"]
        if len(hosts) > 1:
            message = f"expected one Host header, got {len(hosts)}"
            raise ApiError(400, message, code="invalid_http")
        if ANY in self.names:
            return
        for host in hosts:
            name = name_of(host)
            if name not in self.names and not is_address(name):
                message = f"the Host header {host!r} is not allowed; allow it with --allowed-host"
                raise ApiError(403, message, code="host_not_allowed")
