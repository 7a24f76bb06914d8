"""The shape of JSON by its text: counted before anything is made of it, a slice at a time.

Members are objects, lists, and the keys of objects; items are what commas part. A text whose
strings do not end, or that is no JSON at all, is counted as far as it goes.
"""

import numpy

from glm_engine.server.errors import ApiError
from glm_engine.server.settings import Settings

SLICE_LENGTH = 65_536
BRACKETS = b"[{]}"
OTHERS = bytes(set(range(256)).difference(BRACKETS + b':,"'))
STEPS = numpy.zeros(256, dtype=numpy.int8)
STEPS[list(b"[{")], STEPS[list(b"]}")] = 1, -1


def too_complex(message):
    return ApiError(400, message, code="json_too_complex")


def too_deep(noun, settings):
    message = f"{noun} is nested more than {settings.max_json_depth} levels deep"
    return ApiError(400, message, code="json_too_deep")


def encoded_slices(text):
    """Yield a text, bytes or str, as slices of bytes that end within no escape of a string."""
    left = b""
    for begin in range(0, len(text), SLICE_LENGTH):
        part = text[begin : begin + SLICE_LENGTH]
        part = left + (part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass"))
        num_backslashes = len(part) - len(part.rstrip(b"\\"))
        left = part[len(part) - num_backslashes % 2 :]
        yield part.removesuffix(left) if left else part


def structure(text):
    """Yield the brackets, colons and commas that stand outside strings."""
    is_inside = 0
    for part in encoded_slices(text):
        plain = part.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, OTHERS)
        runs = plain.split(b'"')
        yield b"".join(runs[is_inside::2])
        is_inside ^= (len(runs) - 1) % 2


def check_texts(texts, noun="the JSON", settings=Settings):
    """Refuse JSON texts that are nested too deep, or hold too much, all of them together."""
    num_members = num_items = 0
    for text in texts:
        depth = 0
        for part in structure(text):
            num_members += sum(map(part.count, (b"[", b"{", b":")))
            num_items += part.count(b",")
            if num_members > settings.max_json_members:
                most = settings.max_json_members
                raise too_complex(f"{noun} has more than {most} objects, lists and keys")
            if num_items > settings.max_json_items:
                raise too_complex(f"{noun} has more than {settings.max_json_items} items")
            depth = depth_after(part, depth, noun, settings)


def depth_after(part, depth, noun, settings):
    """Return how deep the end of a part is nested; ApiError 400 where one is too deep before."""
    steps = STEPS[numpy.frombuffer(part, dtype=numpy.uint8)]
    depths = depth + numpy.cumsum(steps, dtype=numpy.int64)
    if not len(depths):
        return depth
    if depths.max() > settings.max_json_depth:
        raise too_deep(noun, settings)
    return int(depths[-1])
