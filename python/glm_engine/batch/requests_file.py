"""The requests of a batch: a line of JSON each, checked before the first one runs."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from glm_engine.core.errors import BadInputError

URLS = ("/v1/chat/completions", "/v1/completions")
MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One request, and where its line stands in the file: the bodies stay there until asked for."""

    custom_id: str
    url: str
    begin: int
    num_bytes: int


class RequestsFile:
    """The requests of a file, in its order; each `custom_id` stands there once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.requests = list(self.read())
        except BaseException:
            self.close()
            raise

    def read(self) -> Iterator[BatchRequest]:
        """Yield the request of each line that is not empty."""
        lines: dict[str, int] = {}
        begin = 0
        with open(self.descriptor, "rb", closefd=False) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found = self.request(f"{self.path}:{number}", line, begin)
                    if (first := lines.setdefault(found.custom_id, number)) != number:
                        raise BadInputError(
                            f"{self.path}:{number}: custom_id {found.custom_id!r} stands in line "
                            f"{first}, too"
                        )
                    yield found
                begin += len(line)

    def request(self, place: str, line: bytes, begin: int) -> BatchRequest:
        """Return the request of a line; BadInputError names the line and the wrong field."""
        stated = object_of(place, line)
        custom_id = stated.get("custom_id")
        if not isinstance(custom_id, str) or not custom_id:
            raise wrong(f"{place}: custom_id", "a string that is not empty", custom_id)
        if stated.get("method") != "POST":
            raise wrong(f"{place}: method", "'POST'", stated.get("method"))
        url = stated.get("url")
        if url not in URLS:
            raise wrong(f"{place}: url", f"one of {', '.join(URLS)}", url)
        body = stated.get("body")
        if not isinstance(body, dict):
            raise wrong(f"{place}: body", "an object", body)
        if body.get("stream"):
            raise wrong(f"{place}: body.stream", "false", body["stream"])
        return BatchRequest(custom_id, str(url), begin, len(line))

    def body(self, request: BatchRequest) -> bytes:
        """Return the JSON of a request's body."""
        line = os.pread(self.descriptor, request.num_bytes, request.begin)
        return orjson.dumps(object_of(str(self.path), line)["body"])

    def close(self) -> None:
        os.close(self.descriptor)


def object_of(place: str, line: bytes) -> dict[str, object]:
    """Return the JSON object of a line."""
    try:
        stated = orjson.loads(line)
    except ValueError as error:
        raise BadInputError(f"{place}: not valid JSON: {error}") from error
    if not isinstance(stated, dict):
        raise wrong(place, "a JSON object", stated)
    return stated


def wrong(place: str, expected: str, value: object) -> BadInputError:
    """Return the error of a value that is not what its place takes."""
    text = "nothing" if value is None else repr(value)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} and more"
    return BadInputError(f"{place}: expected {expected}, got {shown}")
