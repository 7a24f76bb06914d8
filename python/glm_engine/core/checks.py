"""Checks of what callers give: an error says where, what was expected and what came."""

import difflib
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Self

from glm_engine.core.errors import BadInputError

Check = Callable[[str, object], None]


class FieldError(BadInputError):
    """A value that its place does not take."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}")
        self.place = place
        self.problem = problem


def shown(value: object) -> str:
    """Return a value as an error shows it, cut where it is long."""
    return reprlib.repr(value)


def wrong(place: str, expected: str, value: object) -> FieldError:
    """Return the error of a value that is not what its place takes."""
    return FieldError(place, f"expected {expected}, got {shown(value)}")


def unknown_name(place: str, name: str, known: Iterable[str]) -> BadInputError:
    """Return the error of a name that a place does not know, with the nearest one that it does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return BadInputError(f"{place}: unknown field {name!r}; {hint}")


def is_number(value: object) -> bool:
    """Say whether a value is a finite number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to `most`."""

    least: int
    most: int

    def __call__(self, place: str, value: object) -> None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not (is_whole and isinstance(value, int) and self.least <= value <= self.most):
            raise wrong(place, f"a whole number from {self.least} to {self.most}", value)


@dataclass(frozen=True)
class Real:
    """A finite number from `least` to `most`."""

    least: float
    most: float

    def __call__(self, place: str, value: object) -> None:
        is_real = isinstance(value, int | float) and is_number(value)
        if not (is_real and isinstance(value, int | float) and self.least <= value <= self.most):
            raise wrong(place, f"a number from {self.least:g} to {self.most:g}", value)


@dataclass(frozen=True)
class Text:
    """A text of `least` to `most` characters."""

    most: int
    least: int = 0

    def __call__(self, place: str, value: object) -> None:
        if not isinstance(value, str):
            raise wrong(place, "a string", value)
        if not self.least <= len(value) <= self.most:
            bounds = f"{self.least} to {self.most} characters"
            raise BadInputError(f"{place}: expected {bounds}, got {len(value)}")


@dataclass(frozen=True)
class ListOf:
    """A list or tuple of `least` to `most` items, each of which passes a check."""

    item: Check
    most: int
    least: int = 0

    def __call__(self, place: str, value: object) -> None:
        items = sequence_of(place, value)
        if not self.least <= len(items) <= self.most:
            bounds = f"{self.least} to {self.most} items"
            raise BadInputError(f"{place}: expected {bounds}, got {len(items)}")
        for at, item in enumerate(items):
            self.item(f"{place}[{at}]", item)


@dataclass(frozen=True)
class TextOrList:
    """A text, or a list of texts."""

    texts: ListOf

    def __call__(self, place: str, value: object) -> None:
        if isinstance(value, str):
            self.texts.item(place, value)
        else:
            self.texts(place, value)


def flag(place: str, value: object) -> None:
    """Refuse what is no truth value."""
    if not isinstance(value, bool):
        raise wrong(place, "True or False", value)


def sequence_of(place: str, value: object) -> Sequence[object]:
    """Return a list or tuple; any other value is an error."""
    if isinstance(value, list | tuple):
        return value
    raise wrong(place, "a list", value)


def mapping_of(place: str, value: object) -> Mapping[str, object]:
    """Return a dictionary whose keys are texts; any other value is an error."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    raise wrong(place, "a dictionary with strings as keys", value)


def text_of(place: str, value: object) -> str:
    """Return a text; any other value is an error."""
    if isinstance(value, str):
        return value
    raise wrong(place, "a string", value)


def check_fields(owner: object, checks: Mapping[str, Check]) -> None:
    """Check the fields of a dataclass that are not None."""
    for name, check in checks.items():
        value = getattr(owner, name)
        if value is not None:
            check(f"{type(owner).__name__}.{name}", value)


class NamedFields:
    """A base of dataclasses that names a field it does not know."""

    def __new__(cls, *_positional: object, **named: object) -> Self:
        if is_dataclass(cls):
            known = {field.name for field in fields(cls)}
            for name in named.keys() - known:
                raise unknown_name(cls.__name__, name, known)
        return super().__new__(cls)
