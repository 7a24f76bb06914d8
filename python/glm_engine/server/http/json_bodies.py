"""JSON of requests: its shape is bounded by its text before it is parsed, and by its values after.

Members are objects, lists, and the keys of objects; items are what commas part, and texts count
for two. A text whose strings do not end, or that is no JSON at all, is counted as far as it goes.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import orjson
from starlette.requests import Request

from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.server_settings import FREE_BODY_BYTES, Settings

Limits = Settings | type[Settings]
Container = dict[Any, Any] | list[Any]
ARGUMENTS = "the JSON in arguments"
MEMBERS = "objects, lists and keys"
SLICE_LENGTH = 65_536
BRACKETS = b"[{]}"
OTHERS = bytes(set(range(256)).difference(BRACKETS + b':,"'))
STEPS = numpy.zeros(256, dtype=numpy.int8)
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1
CONTAINERS = frozenset({dict, list})


def too_complex(message: str) -> ApiError:
    return ApiError(400, message, code="json_too_complex")


def too_deep(noun: str, settings: Limits) -> ApiError:
    message = f"{noun} is nested more than {settings.max_json_depth} levels deep"
    return ApiError(400, message, code="json_too_deep")


def encoded_slices(text: str | bytes) -> Iterator[bytes]:
    """Yield a text, bytes or str, as slices of bytes that end within no escape of a string."""
    left = b""
    for begin in range(0, len(text), SLICE_LENGTH):
        part = text[begin : begin + SLICE_LENGTH]
        part = left + (part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass"))
        num_backslashes = len(part) - len(part.rstrip(b"\\"))
        left = part[len(part) - num_backslashes % 2 :]
        yield part.removesuffix(left) if left else part


def structure(text: str | bytes) -> Iterator[bytes]:
    """Yield the brackets, colons and commas outside strings, with a quote for each string between.

    One that begins or ends in another slice has none.
    """
    is_inside = 0
    for part in encoded_slices(text):
        plain = part.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, OTHERS)
        runs = plain.split(b'"')
        yield b'"'.join(runs[is_inside::2])
        is_inside ^= (len(runs) - 1) % 2


def check_texts(
    texts: Iterable[str | bytes], noun: str = "the JSON", settings: Limits = Settings
) -> None:
    """Refuse JSON texts that hold too much, all of them together."""
    num_members = num_items = 0
    for text in texts:
        for part in structure(text):
            num_members += sum(map(part.count, (b"[", b"{", b":")))
            num_items += part.count(b",") + part.count(b'"')
            if num_members > settings.max_json_members:
                raise too_complex(f"{noun} has more than {settings.max_json_members} {MEMBERS}")
            if num_items > settings.max_json_items:
                raise too_complex(f"{noun} has more than {settings.max_json_items} items")


def check_depth(text: str | bytes, noun: str = "the JSON", settings: Limits = Settings) -> None:
    """Refuse a JSON text that is nested deeper than its parsers go, or than is taken."""
    depth = 0
    for part in structure(text):
        steps = STEPS[numpy.frombuffer(part, dtype=numpy.uint8)]
        depths = depth + numpy.cumsum(steps, dtype=numpy.int64)
        if depths.max(initial=0) > settings.max_json_depth:
            raise too_deep(noun, settings)
        depth = int(depths[-1]) if len(depths) else depth


def check_arguments(texts: Sequence[str]) -> None:
    """Refuse arguments of calls, which come as texts, that hold too much or are nested too deep."""
    check_texts(texts, ARGUMENTS)
    for text in texts:
        check_depth(text, ARGUMENTS)


def check_shape(value: object, settings: Settings, noun: str = "the JSON") -> int:
    """Refuse JSON that is nested too deep, or costs more to look through than its text says.

    Members are objects, lists, and the keys of objects; numbers and texts in lists are none.
    Returns the number of all items of lists and keys of objects.
    """
    level: list[Any] = [value] if type(value) in CONTAINERS else []
    num_members = num_items = 0
    for _ in range(settings.max_json_depth):
        num_members += len(level) + num_keys(level, settings.max_object_members, noun)
        if num_members > settings.max_json_members:
            raise too_complex(f"{noun} has more than {settings.max_json_members} {MEMBERS}")
        num_items += sum(map(len, level))
        level = [child for one in level for child in children(one)]
        if not level:
            return num_items
    raise too_deep(noun, settings)


def num_keys(level: Iterable[Container], most: int, noun: str) -> int:
    sizes = [len(one) for one in level if type(one) is dict]
    if sizes and max(sizes) > most:
        raise too_complex(f"an object in {noun} has {max(sizes)} keys; the maximum is {most}")
    return sum(sizes)


def children(value: Container) -> list[Container]:
    """Return the containers inside one; a long list of numbers is looked through in C."""
    inside = value.values() if isinstance(value, dict) else value
    if CONTAINERS.isdisjoint(map(type, inside)):
        return []
    return [child for child in inside if type(child) in CONTAINERS]


class JsonReader:
    """Reads JSON, large texts in a thread: strict UTF-8, no NaN, bounded shape."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pool = ThreadPoolExecutor(1, "glm-bodies")

    async def read(self, text: bytes) -> Any:
        if len(text) <= FREE_BODY_BYTES:
            return self.parsed(text)
        return await asyncio.get_running_loop().run_in_executor(self.pool, self.parsed, text)

    def parsed(self, text: bytes) -> Any:
        check_texts([text], settings=self.settings)
        value = orjson.loads(text)
        check_shape(value, self.settings)
        return value


class JsonRequest(Request):
    """A request whose body is read by a `JsonReader`."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = await self.app.state.json_reader.read(await self.body())
        return self._json
