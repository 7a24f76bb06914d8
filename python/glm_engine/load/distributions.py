"""Lengths in tokens, drawn from a distribution that a text names."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from glm_engine.core.errors import BadInputError

if TYPE_CHECKING:
    from numpy.random import Generator

LONGEST, MOST_DIGITS = 2**31 - 1, 20

FORMS = "N, uniform:MIN:MAX or lognormal:MEDIAN:SIGMA[:MAX]"
Draw = Callable[["Generator", int], list[int]]


@dataclass(frozen=True)
class Lengths:
    """A distribution of whole numbers above 0. `draw(generator, count)` gives a list."""

    text: str
    draw: Draw


def parse_lengths(text: str, option: str = "lengths") -> Lengths:
    """Return the `Lengths` of `128`, `uniform:32:512` or `lognormal:256:0.8:2048`.

    `fixed:128` is another way to write 128. Errors name the `option` that has the text.
    """
    where = f"{option} {text!r}"
    if text.isdigit():
        return Lengths(text, fixed(where, [text]))
    kind, _, rest = text.partition(":")
    if kind not in KINDS:
        raise BadInputError(f"{option}: expected {FORMS}, got {text!r}")
    make, least, most = KINDS[kind]
    fields = rest.split(":") if rest else []
    if not least <= len(fields) <= most:
        raise BadInputError(f"{option}: expected {FORMS}, got {text!r}")
    return Lengths(text, make(where, fields))


def fixed(where: str, fields: Sequence[str]) -> Draw:
    number = whole(where, fields[0])
    return lambda _, count: [number] * count


def uniform(where: str, fields: Sequence[str]) -> Draw:
    least, most = (whole(where, field) for field in fields)
    if least > most:
        raise BadInputError(f"{where}: the minimum {least} is above the maximum {most}")
    return lambda generator, count: generator.integers(least, most + 1, count).tolist()


def lognormal(where: str, fields: Sequence[str]) -> Draw:
    median, sigma = whole(where, fields[0]), spread(where, fields[1])
    most = whole(where, fields[2]) if len(fields) > 2 else LONGEST

    def draw(generator: "Generator", count: int) -> list[int]:
        numbers = generator.lognormal(math.log(median), sigma, count).round().clip(1, most)
        return [int(number) for number in numbers]

    return draw


def whole(where: str, field: str) -> int:
    if not (field.isascii() and field.isdigit() and field.strip("0")):
        raise BadInputError(f"{where}: expected a whole number above 0, got {field!r}")
    if len(field) > MOST_DIGITS or int(field) > LONGEST:
        raise BadInputError(f"{where}: expected at most {LONGEST:,}, got {field}")
    return int(field)


def spread(where: str, field: str) -> float:
    try:
        number = float(field)
    except ValueError:
        number = math.nan
    if not 0 < number <= 10:
        raise BadInputError(f"{where}: expected sigma above 0 and up to 10, got {field!r}")
    return number


KINDS: dict[str, tuple[Callable[[str, Sequence[str]], Draw], int, int]] = {
    "fixed": (fixed, 1, 1),
    "uniform": (uniform, 2, 2),
    "lognormal": (lognormal, 2, 3),
}
