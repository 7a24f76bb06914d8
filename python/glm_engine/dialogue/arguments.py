"""The arguments of one call as JSON text: written piece by piece, and read where it was cut."""

import orjson
import pydantic_core

from glm_engine.dialogue.schema import argument_name, argument_types, is_string
from glm_engine.dialogue.values import quoted, value_json


def escaped(text):
    """Return text as it stands between the quotes of a JSON string."""
    return quoted(text)[1:-1]


def whole_members(text):
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

    def __init__(self, parameters):
        self.parameters = parameters
        self.separator = "{"
        self.key = []
        self.value = []
        self.types = None

    def push_key(self, text):
        """Take a piece of a key; nothing is written before the key is whole."""
        self.key.append(text)
        return ""

    def begin_value(self):
        """Return the key, now whole, and the quote if the value is written as it comes."""
        key = argument_name(self.parameters, "".join(self.key))
        self.types = argument_types(self.parameters, key)
        text = f"{self.separator}{quoted(key)}: "
        self.separator, self.key = ", ", []
        return text + '"' if is_string(self.types) else text

    def push_value(self, text):
        if is_string(self.types):
            return escaped(text)
        self.value.append(text)
        return ""

    def end_value(self):
        if is_string(self.types):
            return '"'
        text, self.value = "".join(self.value), []
        return value_json(text, self.types)

    def close(self):
        """Return the end of the object."""
        return "{}" if self.separator == "{" else "}"

    def unfinished_key(self):
        """Return a key that text ended in; its string and its object stay open."""
        return f'{self.separator}"{escaped("".join(self.key))}'

    def unfinished_value(self):
        """Return the value that text ended in; its string and its object stay open."""
        if is_string(self.types):
            return ""
        return f'"{escaped("".join(self.value))}'
