"""Lengths in tokens, drawn from a distribution that is written as text."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from glm_engine.errors import BadInputError

LONGEST, MOST_DIGITS = 2**31 - 1, 20

FORMS = "fixed:N, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA[:MOST]"


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers above 0. `draw(generator, count)` gives a list."""

    text: str
    draw: Callable


def parse_lengths(text):
    """Return the `Lengths` that `fixed:128`, `uniform:32:512` or `lognormal:256:0.8:2048` names."""
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise BadInputError(f"unknown distribution of lengths {text!r}; known are {FORMS}")
    make, least, most = KINDS[kind]
    fields = rest.split(":") if rest else []
    if not least <= len(fields) <= most:
        raise BadInputError(f"lengths {text!r}: {len(fields)} numbers, the form is one of {FORMS}")
    return Lengths(text, make(text, fields))


def fixed(text, fields):
    number = whole(text, fields[0])
    return lambda _, count: [number] * count


def uniform(text, fields):
    least, most = (whole(text, field) for field in fields)
    if least > most:
        raise BadInputError(f"lengths {text!r}: the least, {least}, is above the most, {most}")
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
        raise BadInputError(f"lengths {text!r}: {field!r} is not a whole number above 0")
    if len(field) > MOST_DIGITS or int(field) > LONGEST:
        raise BadInputError(f"lengths {text!r}: {field} is above {LONGEST:,}")
    return int(field)


def spread(text, field):
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not 0 < number <= 10:
        raise BadInputError(f"lengths {text!r}: sigma is {field!r}; it must be in (0, 10]")
    return number


KINDS = {"fixed": (fixed, 1, 1), "uniform": (uniform, 2, 2), "lognormal": (lognormal, 2, 3)}
