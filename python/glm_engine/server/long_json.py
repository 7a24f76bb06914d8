"""JSON that holds long lists: they are rendered a few items at a time, while it is sent."""

from itertools import islice

import orjson

ITEMS_OF_PART = 32
LEAST_CHUNK_BYTES = 65_536
MARK = b"\0"


class LongList:
    """A list in a value for `dumps`, given by an iterable that is read when its turn comes."""

    def __init__(self, items):
        self.items = items

    def parts(self):
        """Yield the JSON of the list."""
        items, separator = iter(self.items), b""
        yield b"["
        while part := list(islice(items, ITEMS_OF_PART)):
            yield separator + orjson.dumps(part)[1:-1]
            separator = b","
        yield b"]"


def dumps(value):
    """Return the JSON of a value: bytes, or an iterator of them where a `LongList` is in it.

    Each such list has its place by a NUL, which no JSON text holds.
    """
    lists = []

    def marked(found):
        if not isinstance(found, LongList):
            raise TypeError(f"{type(found).__name__} is not JSON serializable")
        lists.append(found)
        return orjson.Fragment(MARK)

    text = orjson.dumps(value, default=marked)
    return filled(lists, *text.split(MARK)) if lists else text


def filled(lists, first, *rest):
    yield first
    for one, after in zip(lists, rest, strict=True):
        yield from one.parts()
        yield after


def chunks_of(*texts):
    """Yield texts, each bytes or an iterator of them, in chunks; the last holds what is left."""
    gathered, size = [], 0
    for text in texts:
        for part in (text,) if isinstance(text, bytes) else text:
            gathered.append(part)
            size += len(part)
            if size >= LEAST_CHUNK_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    yield b"".join(gathered)
