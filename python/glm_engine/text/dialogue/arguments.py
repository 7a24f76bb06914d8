"""The arguments of one call as JSON text: written piece by piece, and read where it was cut."""

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pydantic_core

from glm_engine.text.dialogue.readings import begins_like_a_piece, ends_like_a_piece
from glm_engine.text.dialogue.schema import Types, argument_name, argument_types, is_string
from glm_engine.text.dialogue.tags import SPACES, TOOL_CALL_END
from glm_engine.text.dialogue.values import quoted, value_json

Write = Callable[[str], None]
PROPER, MISSING, WRONG = "<arg_value>", "no tag", "a wrong tag"
LONGEST_PIECE = 16


def escaped(text: str) -> str:
    """Return text as it stands between the quotes of a JSON string."""
    return quoted(text)[1:-1]


def whole_members(text: str) -> Any:
    """Return a JSON value, of one that is cut off what is whole of it; {} where it is none."""
    try:
        return orjson.loads(text or "{}")
    except ValueError:
        pass
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False, allow_partial=True)
    except ValueError:
        return {}


class ArgumentsWriter:
    """Turns keys and values into the pieces of one JSON object.

    A value that can only be a string is written as it comes; any other is gathered, and written
    when it is whole.
    """

    def __init__(self, parameters: object) -> None:
        self.parameters = parameters
        self.separator = "{"
        self.key: list[str] = []
        self.value: list[str] = []
        self.types: Types = None

    def push_key(self, text: str) -> str:
        """Take a piece of a key; nothing is written before the key is whole."""
        self.key.append(text)
        return ""

    @property
    def unwritten_key(self) -> str:
        return "".join(self.key)

    def forget_key(self) -> None:
        self.key.clear()

    def begin_value(self) -> str:
        """Return the key, now whole, and the quote if the value is written as it comes."""
        key = argument_name(self.parameters, self.unwritten_key)
        self.types = argument_types(self.parameters, key)
        text = f"{self.separator}{quoted(key)}: "
        self.separator, self.key = ", ", []
        return text + '"' if is_string(self.types) else text

    def push_value(self, text: str) -> str:
        if is_string(self.types):
            return escaped(text)
        self.value.append(text)
        return ""

    def fits(self, rest: Iterable[str]) -> bool:
        """Say whether the value that was gathered, with the rest of it, is of the key's types."""
        if self.types is None or "string" in self.types:
            return True
        return not value_json("".join([*self.value, *rest]), self.types).startswith('"')

    def end_value(self) -> str:
        if is_string(self.types):
            return '"'
        text, self.value = "".join(self.value), []
        return value_json(text, self.types)

    def close(self) -> str:
        """Return the end of the object."""
        return "{}" if self.separator == "{" else "}"

    def unfinished_key(self) -> str:
        """Return a key that text ended in; its string and its object stay open."""
        return f'{self.separator}"{escaped(self.unwritten_key)}'

    def unfinished_value(self) -> str:
        """Return the value that text ended in; its string and its object stay open."""
        if is_string(self.types):
            return ""
        return f'"{escaped("".join(self.value))}'


class Value:
    """One value: what a proper tag opened is given on as it comes, other text when it has ended.

    opening: the tag before it is the `PROPER` one, `MISSING` or a `WRONG` one.
    """

    def __init__(self, writer: ArgumentsWriter, write: Write, opening: str) -> None:
        self.writer = writer
        self.write = write
        self.opening = opening
        self.held: list[str] = []
        self.spaces: list[str] = []
        self.last = ""

    def push(self, text: str) -> None:
        """Take text; white space stays behind until it is certain that it is no layout."""
        body = text.rstrip(SPACES)
        if body:
            self.give("".join([*self.spaces, body]))
            self.last = (self.last + body)[-LONGEST_PIECE:]
            self.spaces.clear()
        self.spaces.append(text[len(body) :])

    def give(self, text: str) -> None:
        if self.opening == PROPER:
            self.write(self.writer.push_value(text))
        else:
            self.held.append(text)

    @property
    def may_begin_with_piece(self) -> bool:
        return self.opening != PROPER and begins_like_a_piece("".join(self.held))

    @property
    def is_certain(self) -> bool:
        """Whether a value that its own tag ends has one reading."""
        fits = self.opening == PROPER or self.writer.fits(self.held)
        return fits and not self.may_begin_with_piece

    def may_end_at(self, tag: str) -> bool:
        """Say whether the value can only end where a tag stands that is not its own."""
        if self.opening == WRONG or (self.opening == MISSING and tag != TOOL_CALL_END):
            return False
        if self.may_begin_with_piece or ends_like_a_piece(self.last):
            return False
        return self.writer.fits(self.held) and (bool(self.last) or tag == TOOL_CALL_END)

    def end(self, is_proper: bool) -> None:
        """Write the end; white space before a tag that is not its own is layout."""
        self.give("".join(self.spaces) if is_proper else "")
        self.write(self.writer.push_value("".join(self.held)) + self.writer.end_value())

    def leave(self) -> None:
        """Write what came of it; its string and its object stay open."""
        self.give("".join(self.spaces))
        self.write(self.writer.push_value("".join(self.held)) + self.writer.unfinished_value())
