"""Bounds on a body while it is read: its bytes, its time, the shape of its JSON."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import orjson
from fastapi import Request
from fastapi.routing import APIRoute

from glm_engine.server.errors import CLIENT_CLOSED_REQUEST, ApiError
from glm_engine.server.json_bounds import check_texts, too_complex, too_deep
from glm_engine.server.settings import FREE_BODY_BYTES

CONTAINERS = frozenset({dict, list})
MAX_LENGTH_DIGITS = 19


def too_large(settings):
    message = (
        f"the request body is larger than the limit of {settings.max_body_bytes} bytes "
        "(--max-body-size)"
    )
    return ApiError(413, message, code="body_too_large")


def declared_length(headers):
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

    def __init__(self, receive, settings, gate):
        self.receive = receive
        self.settings = settings
        self.gate = gate
        self.num_bytes = 0
        self.num_held = 0
        self.is_whole = False
        self.is_working = False
        self.until = asyncio.get_running_loop().time() + settings.body_seconds

    async def __call__(self):
        if self.is_whole:
            return await self.receive()
        try:
            async with asyncio.timeout_at(self.until):
                message = await self.receive()
        except TimeoutError:
            text = f"the request body did not arrive within {self.settings.body_seconds:g} s"
            raise ApiError(408, text, code="body_timeout") from None
        if message["type"] == "http.disconnect":
            message = "the client closed the connection before sending the whole request body"
            raise ApiError(CLIENT_CLOSED_REQUEST, message)
        self.num_bytes += len(message.get("body", b""))
        if self.num_bytes > self.settings.max_body_bytes:
            raise too_large(self.settings)
        self.hold(max(0, self.num_bytes - FREE_BODY_BYTES))
        self.is_whole = not message.get("more_body", False)
        if self.is_whole:
            self.gate.start_work()
            self.is_working = True
        return message

    def hold(self, num_bytes):
        self.gate.hold_bytes(num_bytes - self.num_held)
        self.num_held = num_bytes

    def forget(self):
        """Count the body no more: it has been read, or is not wanted."""
        self.hold(0)


def check_shape(value, settings, noun="the JSON"):
    """Refuse JSON that is nested too deep, or costs more to look through than its text says.

    Members are objects, lists, and the keys of objects; numbers and texts in lists are none.
    Returns the number of all items of lists and keys of objects.
    """
    level = [value] if type(value) in CONTAINERS else []
    num_members = num_items = 0
    for _ in range(settings.max_json_depth):
        num_members += len(level) + num_keys(level, settings.max_object_members, noun)
        if num_members > settings.max_json_members:
            most = settings.max_json_members
            raise too_complex(f"{noun} has more than {most} objects, lists and keys")
        num_items += sum(map(len, level))
        level = [child for one in level for child in children(one)]
        if not level:
            return num_items
    raise too_deep(noun, settings)


def num_keys(level, most, noun):
    sizes = [len(one) for one in level if type(one) is dict]
    if sizes and max(sizes) > most:
        raise too_complex(f"an object in {noun} has {max(sizes)} keys; the maximum is {most}")
    return sum(sizes)


def children(value):
    """Return the containers inside one; a long list of numbers is looked through in C."""
    inside = value.values() if isinstance(value, dict) else value
    if CONTAINERS.isdisjoint(map(type, inside)):
        return []
    return [child for child in inside if type(child) in CONTAINERS]


class JsonReader:
    """Reads JSON, large texts in a thread: strict UTF-8, no NaN, bounded shape."""

    def __init__(self, settings):
        self.settings = settings
        self.pool = ThreadPoolExecutor(1, "glm-bodies")

    async def read(self, text):
        if len(text) <= FREE_BODY_BYTES:
            return self.parsed(text)
        return await asyncio.get_running_loop().run_in_executor(self.pool, self.parsed, text)

    def parsed(self, text):
        check_texts([text], settings=self.settings)
        value = orjson.loads(text)
        check_shape(value, self.settings)
        return value


class JsonRequest(Request):
    """A request whose body is read by a `JsonReader`."""

    async def json(self):
        if not hasattr(self, "_json"):
            self._json = await self.app.state.json_reader.read(await self.body())
        return self._json


class JsonRoute(APIRoute):
    """A route that takes JSON and says so to whoever sends something else."""

    def get_route_handler(self):
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def handle_json(request):
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if takes_body and kind != "application/json":
                message = f"expected content-type application/json, got {kind or 'none'}"
                raise ApiError(415, message, code="unsupported_media_type")
            try:
                return await handle(JsonRequest(request.scope, request.receive))
            finally:
                request.scope["body"].forget()

        return handle_json
