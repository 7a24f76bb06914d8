"""Lengths in tokens, drawn from a distribution that a text names."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from glm_engine.errors import BadInputError

LONGEST, MOST_DIGITS = 2**31 - 1, 20

FORMS = "N, uniform:MIN:MAX or lognormal:MEDIAN:SIGMA[:MAX]"


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers above 0. `draw(generator, count)` gives a list."""

    text: str
    draw: Callable


def parse_lengths(text):
    """Return the `Lengths` of `128`, `uniform:32:512` or `lognormal:256:0.8:2048`.

    `fixed:128` is another way to write 128.
    """
    if text.isdigit():
        return Lengths(text, fixed(text, [text]))
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise BadInputError(f"lengths: expected {FORMS}, got {text!r}")
    make, least, most = KINDS[kind]
    fields = rest.split(":") if rest else []
    if not least <= len(fields) <= most:
        raise BadInputError(f"lengths: expected {FORMS}, got {text!r}")
    return Lengths(text, make(text, fields))


def fixed(text, fields):
    number = whole(text, fields[0])
    return lambda _, count: [number] * count


def uniform(text, fields):
    least, most = (whole(text, field) for field in fields)
    if least > most:
        raise BadInputError(f"lengths {text!r}: the minimum {least} is above the maximum {most}")
    return lambda generator, count: generator.integers(least, most + 1, count).tolist()


def lognormal(text, fields):
    median, sigma = whole(text, fields[0]), spread(text, fields[1])
    most = whole(text, fields[2]) if len(fields) > 2 else LONGEST

    def draw(generator, count):
        numbers = generator.lognormal(math.log(median), sigma, count).round().clip(1, most)
        return numbers.astype(int).tolist()

    return draw


def whole(text, field):
    if not (field.isascii() and field.isdigit() and field.strip("0")):
        raise BadInputError(f"lengths {text!r}: expected a whole number above 0, got {field!r}")
    if len(field) > MOST_DIGITS or int(field) > LONGEST:
        raise BadInputError(f"lengths {text!r}: expected at most {LONGEST:,}, got {field}")
    return int(field)


def spread(text, field):
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not 0 < number <= 10:
        raise BadInputError(f"lengths {text!r}: expected sigma above 0 and up to 10, got {field!r}")
    return number


KINDS = {"fixed": (fixed, 1, 1), "uniform": (uniform, 2, 2), "lognormal": (lognormal, 2, 3)}
