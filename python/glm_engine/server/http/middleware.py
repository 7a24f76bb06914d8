"""The outermost ASGI layer: each request gets its record, is admitted, and is logged."""

import asyncio
import logging

import structlog
from starlette.middleware.cors import CORSMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from glm_engine.server.http.admission import BoundedReceive, declared_length, too_large
from glm_engine.server.http.api_errors import (
    CLIENT_CLOSED_REQUEST,
    ApiError,
    answer_of,
    response_of,
)
from glm_engine.server.http.auth import Hosts
from glm_engine.server.http.request_record import Visit, address_of, current, request_id_of

log = structlog.get_logger("server")
OTHER = "other"
CLOSED_EARLY = "the connection was closed before the answer was complete"
REQUEST_IDS = (b"x-request-id", b"request-id")
SHOWN_TO_PAGES = ("x-request-id", "request-id", "retry-after", "x-should-retry")
GET_ALONE, GET_AND_HEAD = (b"allow", b"GET"), (b"allow", b"GET, HEAD")
QUIET_ENDPOINTS = ("/health", "/healthz", "/readyz", "/metrics", "/gauges", "/")


def labels_of(visit):
    return [(name, visit.request_id.encode()) for name in REQUEST_IDS]


def shared(app, origins):
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


def record(service, visit, headers=()):
    visit.status = visit.status or CLIENT_CLOSED_REQUEST
    if visit.status == CLIENT_CLOSED_REQUEST and visit.reason is None:
        visit.reason = CLOSED_EARLY
    service.metrics.take_visit(visit)
    if service.tracing:
        service.tracing.write(visit, headers)
    log_visit(visit)


def refusal(service, error, headers, **known):
    """Record a request that never reached the application; return the bytes that answer it.

    known: fields of its visit.
    """
    visit = Visit(OTHER, status=error.status_code, reason=error.detail, **known)
    answer = response_of(error, "/")
    closing = (b"connection", b"close")
    lines = [*headers, *answer.raw_headers, *labels_of(visit), closing]
    record(service, visit)
    head = b"".join(b"%s: %s\r\n" % line for line in lines)
    return b"%s%s\r\n%s" % (STATUS_LINE[error.status_code], head, answer.body)


class Entry:
    """Wraps the application; pure ASGI, so that a streamed chunk passes one small function.

    HEAD reaches the application as GET; uvicorn leaves the body of its answer out.
    """

    def __init__(self, app, service, endpoints):
        self.app = app
        self.service = service
        self.endpoints = frozenset(endpoints)
        self.hosts = Hosts(service.settings, bool(service.keys.digests))
        self.answer = shared(self.admit, service.settings.allowed_origins)

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit = self.visit_of(scope, send)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        scope["visit"] = visit
        current.set(visit)
        try:
            await self.answer(scope, receive, self.labelled(send, visit))
        finally:
            visit.send = None
            record(self.service, visit, scope["headers"])

    def visit_of(self, scope, send):
        path = scope["path"]
        return Visit(
            endpoint=path if path in self.endpoints else OTHER,
            send=send,
            request_id=request_id_of(scope["headers"]),
            method=scope["method"],
            path=path,
            client=address_of(scope.get("client")),
        )

    async def admit(self, scope, receive, send):
        try:
            self.hosts.check(scope["headers"])
            if self.service.gate.is_guarded(scope["path"]):
                await self.pass_gate(scope, receive, send, scope["visit"])
            else:
                await self.app(scope, receive, send)
        except ApiError as error:
            await answer_of(error, scope)(scope, receive, send)

    async def pass_gate(self, scope, receive, send, visit):
        gate = self.service.gate
        bounded = BoundedReceive(receive, self.service.settings, gate)
        scope["body"] = bounded
        gate.enter(visit, bounded)
        try:
            self.check(scope, visit)
            await self.app(scope, bounded, send)
        except asyncio.CancelledError:
            if visit.status:
                raise
            raise gate.draining_error() from None
        finally:
            del scope["body"]
            gate.leave()

    def check(self, scope, visit):
        visit.api_key = self.service.keys.check(scope["path"], scope["headers"])
        self.service.gate.check()
        if declared_length(scope["headers"]) > self.service.settings.max_body_bytes:
            raise too_large(self.service.settings)

    def labelled(self, send, visit):
        """Add the request's id to its answer and note the status, and why it was refused.

        Starlette's own refusals, such as that of an origin, say it in their body.
        """

        async def send_labelled(message):
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                found = message.get("headers", ())
                headers = [GET_AND_HEAD if one == GET_ALONE else one for one in found]
                message["headers"] = headers + labels_of(visit)
            elif visit.reason is None and 400 <= visit.status < 500:
                visit.reason = message.get("body", b"").decode("utf-8", "replace")
            await send(message)

        return send_labelled


def log_visit(visit):
    """Log a request that has ended, at the level that `level_of` says."""
    log.log(level_of(visit), "request", **visit.as_fields())


def level_of(visit):
    """Return the level of a request: a warning if it was refused or failed.

    Requests for the page, for health and for metrics are of the level debug, or info if they were
    refused. A client that closed the connection is of the level info.
    """
    if visit.endpoint in QUIET_ENDPOINTS:
        return logging.DEBUG if visit.reason is None else logging.INFO
    is_refused = visit.status >= 400 and visit.status != CLIENT_CLOSED_REQUEST
    return logging.WARNING if is_refused else logging.INFO
