"""The JSON that the text of an argument stands for, in whatever way a model spelled it."""

import ast
import json
import warnings
from typing import Any

from glm_engine.text.dialogue.schema import Types, has_type, is_json_of, parsed, type_name
from glm_engine.text.dialogue.tags import SPACES

LONGEST_LITERAL = 1 << 15
UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)
quoted = json.JSONEncoder(ensure_ascii=False).encode


def value_json(text: str, types: Types) -> str:
    """Return the JSON of an argument of these types; text that is none of them is a string."""
    bare = text.strip(SPACES)
    if types is not None and "string" not in types:
        bare = respelled(bare, types)
    return bare if is_json_of(bare, types) else quoted(text)


def respelled(text: str, types: frozenset[str]) -> str:
    """Return the JSON of one of the types that text spells in some way, else text as it is."""
    for reading in (str, unescaped, from_python):
        try:
            found = reading(text)
            found.encode()
            if has_type(type_name(parsed(found)), types):
                return found
        except UNREADABLE:
            continue
    return text


def unescaped(text: str) -> Any:
    """Return what a JSON string says; its quotes may be missing."""
    return json.loads(text if text.startswith('"') else f'"{text}"', strict=False)


def from_python(text: str) -> str:
    """Return the JSON of a Python literal; Python reads slowly, so long ones are refused."""
    if len(text) > LONGEST_LITERAL:
        raise ValueError(f"{len(text)} characters; the limit is {LONGEST_LITERAL}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = ast.literal_eval(text)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
