"""The shape of JSON by its text: counted before anything is made of it, a slice at a time.

Members are objects, lists, and the keys of objects; items are what commas part, and texts count
for two. A text whose strings do not end, or that is no JSON at all, is counted as far as it goes.
"""

import numpy

from glm_engine.server.errors import ApiError
from glm_engine.server.settings import Settings

ARGUMENTS = "the JSON in arguments"
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
    """Yield the brackets, colons and commas outside strings, with a quote for each string between.

    One that begins or ends in another slice has none.
    """
    is_inside = 0
    for part in encoded_slices(text):
        plain = part.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, OTHERS)
        runs = plain.split(b'"')
        yield b'"'.join(runs[is_inside::2])
        is_inside ^= (len(runs) - 1) % 2


def check_texts(texts, noun="the JSON", settings=Settings):
    """Refuse JSON texts that hold too much, all of them together."""
    num_members = num_items = 0
    for text in texts:
        for part in structure(text):
            num_members += sum(map(part.count, (b"[", b"{", b":")))
            num_items += part.count(b",") + part.count(b'"')
            if num_members > settings.max_json_members:
                most = settings.max_json_members
                raise too_complex(f"{noun} has more than {most} objects, lists and keys")
            if num_items > settings.max_json_items:
                raise too_complex(f"{noun} has more than {settings.max_json_items} items")


def check_depth(text, noun="the JSON", settings=Settings):
    """Refuse a JSON text that is nested deeper than its parsers go, or than is taken."""
    depth = 0
    for part in structure(text):
        steps = STEPS[numpy.frombuffer(part, dtype=numpy.uint8)]
        depths = depth + numpy.cumsum(steps, dtype=numpy.int64)
        if depths.max(initial=0) > settings.max_json_depth:
            raise too_deep(noun, settings)
        depth = int(depths[-1]) if len(depths) else depth


def check_arguments(texts):
    """Refuse arguments of calls, which come as texts, that hold too much or are nested too deep."""
    check_texts(texts, ARGUMENTS)
    for text in texts:
        check_depth(text, ARGUMENTS)
