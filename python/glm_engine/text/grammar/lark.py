"""Pieces of llguidance's Lark syntax."""

import json
import re
from collections.abc import Iterable

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.schema import Schema


def literal(text: str) -> str:
    """Return a string as a Lark terminal; Lark has JSON's strings, but DEL only escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def optional(text: str) -> str:
    return f"{literal(text)}?" if text else ""


def alternatives(texts: Iterable[str]) -> str:
    return " | ".join(map(literal, texts))


def text_without(*tags: str) -> str:
    """Return the regular expression of text, not empty, that holds none of the tags."""
    inner = "|".join(re.escape(tag).replace("/", "\\/") for tag in tags)
    return f"/(?s:.)+/ & ~/(?s:.*)({inner})(?s:.*)/"


def inline_json(schema: Schema) -> str:
    return f"%json {json.dumps(schema, ensure_ascii=False)}"


def checked_text(name: str, text: object) -> str:
    """Return a text; one that is none or that UTF-8 cannot write is an error."""
    if not isinstance(text, str):
        raise BadInputError(f"{name}: expected a string, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInputError(f"{name}: not valid Unicode: {error}") from error
    return text
