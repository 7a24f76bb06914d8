"""Layers around handlers: each request gets its record, is admitted, read as JSON, and logged."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from glm_engine.server.http.admission import (
    AllowedHosts,
    BoundedReceive,
    declared_length,
    too_large,
)
from glm_engine.server.http.api_errors import (
    CLIENT_CLOSED_REQUEST,
    ApiError,
    answer_of,
    response_of,
)
from glm_engine.server.http.json_bodies import JsonRequest
from glm_engine.server.http.request_record import RequestRecord, address_of, current, request_id_of

if TYPE_CHECKING:
    from glm_engine.server.app import Service


log = structlog.get_logger("server")
OTHER = "other"
CLOSED_EARLY = "the connection was closed before the answer was complete"
REQUEST_IDS = (b"x-request-id", b"request-id")
SHOWN_TO_PAGES = ("x-request-id", "request-id", "retry-after", "x-should-retry")
GET_ALONE, GET_AND_HEAD = (b"allow", b"GET"), (b"allow", b"GET, HEAD")
QUIET_ENDPOINTS = ("/health", "/healthz", "/readyz", "/metrics", "/gauges", "/")


def labels_of(record: RequestRecord) -> list[tuple[bytes, bytes]]:
    return [(name, record.request_id.encode()) for name in REQUEST_IDS]


def shared(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return an application whose answers pages of these origins may read, and ask beforehand."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "HEAD", "POST", "DELETE"),
        allow_headers=("*",),
        allow_private_network=True,
        expose_headers=SHOWN_TO_PAGES,
    )


def conclude(
    service: "Service", record: RequestRecord, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    record.status = record.status or CLIENT_CLOSED_REQUEST
    if record.status == CLIENT_CLOSED_REQUEST and record.reason is None:
        record.reason = CLOSED_EARLY
    service.metrics.take_record(record)
    if service.tracing:
        service.tracing.write(record, headers)
    log.log(level_of(record), "request", **record.as_fields())


def refusal(
    service: "Service", error: ApiError, headers: Iterable[tuple[bytes, bytes]], **known: Any
) -> bytes:
    """Record a request that never reached the application; return the bytes that answer it.

    known: fields of its record.
    """
    record = RequestRecord(OTHER, status=error.status_code, reason=error.detail, **known)
    answer = response_of(error, "/")
    closing = (b"connection", b"close")
    lines = [*headers, *answer.raw_headers, *labels_of(record), closing]
    conclude(service, record)
    head = b"".join(b"%s: %s\r\n" % line for line in lines)
    return b"%s%s\r\n%s" % (STATUS_LINE[error.status_code], head, answer.body)


class Middleware:
    """Wraps the application; pure ASGI, so that a streamed chunk passes one small function.

    HEAD reaches the application as GET; uvicorn leaves the body of its answer out.
    """

    def __init__(self, app: ASGIApp, service: "Service", endpoints: Iterable[str]) -> None:
        self.app = app
        self.service = service
        self.endpoints = frozenset(endpoints)
        self.hosts = AllowedHosts(service.settings, bool(service.keys.digests))
        self.answer = shared(self.admit, service.settings.allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record = self.record_of(scope, send)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        scope["record"] = record
        current.set(record)
        try:
            await self.answer(scope, receive, self.labelled(send, record))
        finally:
            record.send = None
            conclude(self.service, record, scope["headers"])

    def record_of(self, scope: Scope, send: Send) -> RequestRecord:
        path = scope["path"]
        return RequestRecord(
            endpoint=path if path in self.endpoints else OTHER,
            send=send,
            request_id=request_id_of(scope["headers"]),
            method=scope["method"],
            path=path,
            client=address_of(scope.get("client")),
        )

    async def admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self.hosts.check(scope["headers"])
            if self.service.admission.is_guarded(scope["path"]):
                await self.pass_admission(scope, receive, send, scope["record"])
            else:
                await self.app(scope, receive, send)
        except ApiError as error:
            await answer_of(error, scope)(scope, receive, send)

    async def pass_admission(
        self, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        admission = self.service.admission
        bounded = BoundedReceive(receive, self.service.settings, admission)
        scope["body"] = bounded
        admission.enter(record, bounded)
        try:
            self.check(scope, record)
            await self.app(scope, bounded, send)
        except asyncio.CancelledError:
            if record.status:
                raise
            raise admission.draining_error() from None
        finally:
            del scope["body"]
            admission.leave()

    def check(self, scope: Scope, record: RequestRecord) -> None:
        if self.service.keys.digests:
            record.api_key = self.service.keys.check(scope["path"], scope["headers"])
        self.service.admission.check()
        if declared_length(scope["headers"]) > self.service.settings.max_body_bytes:
            raise too_large(self.service.settings)

    def labelled(self, send: Send, record: RequestRecord) -> Send:
        """Add the request's id to its answer and note the status, and why it was refused.

        Starlette's own refusals, such as that of an origin, say it in their body.
        """

        async def send_labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                found = message.get("headers", ())
                headers = [GET_AND_HEAD if one == GET_ALONE else one for one in found]
                message["headers"] = headers + labels_of(record)
            elif record.reason is None and 400 <= record.status < 500:
                record.reason = message.get("body", b"").decode("utf-8", "replace")
            await send(message)

        return send_labelled


def level_of(record: RequestRecord) -> int:
    """Return the level of a request: a warning if it was refused or failed.

    Requests for the page, for health and for metrics are of the level debug, or info if they were
    refused. A client that closed the connection is of the level info.
    """
    if record.endpoint in QUIET_ENDPOINTS:
        return logging.DEBUG if record.reason is None else logging.INFO
    is_refused = record.status >= 400 and record.status != CLIENT_CLOSED_REQUEST
    return logging.WARNING if is_refused else logging.INFO


class JsonRoute(APIRoute):
    """A route that takes JSON and says so to whoever sends something else."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if takes_body and kind != "application/json":
                message = f"expected content-type application/json, got {kind or 'none'}"
                raise ApiError(415, message, code="unsupported_media_type")
            try:
                return await handle(JsonRequest(request.scope, request.receive))
            finally:
                request.scope["body"].forget()

        return handle_json
