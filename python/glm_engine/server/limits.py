"""Bounds on a body while it is read: its bytes, its time, the depth of its JSON."""

import asyncio

import orjson
from fastapi import Request
from fastapi.routing import APIRoute

from glm_engine.server.errors import CLIENT_CLOSED_REQUEST, ApiError

CONTAINERS = frozenset({dict, list})


def too_large(settings):
    message = f"the body is larger than {settings.max_body_bytes} bytes, the limit of this server"
    return ApiError(413, message, code="body_too_large")


def declared_length(headers):
    """Return the content-length that a request states, or 0."""
    text = next((value for name, value in headers if name == b"content-length"), b"0")
    return int(text) if text.isdigit() else 0


class BoundedReceive:
    """ASGI `receive` that refuses a body that is too long or comes too slowly."""

    def __init__(self, receive, settings):
        self.receive = receive
        self.settings = settings
        self.num_bytes = 0
        self.is_whole = False
        self.until = asyncio.get_running_loop().time() + settings.body_seconds

    async def __call__(self):
        if self.is_whole:
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self.receive()
        except TimeoutError:
            text = f"the body did not come within {self.settings.body_seconds:g} s"
            raise ApiError(408, text, code="body_timeout") from None
        if message["type"] == "http.disconnect":
            raise ApiError(CLIENT_CLOSED_REQUEST, "the client went before its body was whole")
        self.num_bytes += len(message.get("body", b""))
        if self.num_bytes > self.settings.max_body_bytes:
            raise too_large(self.settings)
        self.is_whole = not message.get("more_body", False)
        return message


def check_depth(value, most):
    """Refuse containers nested deeper than `most`."""
    level = [value] if type(value) in CONTAINERS else []
    for _ in range(most):
        level = [child for one in level for child in children(one)]
        if not level:
            return
    message = f"the JSON is nested more than {most} levels deep"
    raise ApiError(400, message, code="json_too_deep")


def children(value):
    """Return the containers inside one; a long list of numbers is looked through in C."""
    inside = value.values() if isinstance(value, dict) else value
    if CONTAINERS.isdisjoint(map(type, inside)):
        return []
    return [child for child in inside if type(child) in CONTAINERS]


class JsonRequest(Request):
    """A request whose body is read by orjson: strict UTF-8, no NaN, bounded depth."""

    async def json(self):
        if not hasattr(self, "_json"):
            self._json = orjson.loads(await self.body())
            check_depth(self._json, self.app.state.settings.max_json_depth)
        return self._json


class JsonRoute(APIRoute):
    """A route that takes JSON and says so to whoever sends something else."""

    def get_route_handler(self):
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request):
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if takes_body and kind != "application/json":
                message = f"content-type is {kind or 'absent'}, expected application/json"
                raise ApiError(415, message, code="unsupported_media_type")
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json
