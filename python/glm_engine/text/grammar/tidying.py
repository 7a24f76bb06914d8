"""Leaves out of a JSON schema what says nothing: only what says something can be refused."""

import re
from collections.abc import Callable
from typing import Any

from glm_engine.text.dialogue.schema import Schema
from glm_engine.text.grammar.schemas import (
    ANNOTATIONS,
    WORDS_OF_LIST,
    WORDS_OF_SCHEMA,
    WORDS_OF_TABLE,
    JsonSchema,
)

DIALECT = re.compile(
    r"https?://json-schema\.org/(draft-0[34567]/schema|draft/20(19-09|20-12)/schema)#?"
)
COUNTS = frozenset(f"{bound}{what}" for bound in ("min", "max") for what in ("Items", "Length"))
COUNTS |= {"minProperties", "maxProperties"}
SUBSCHEMAS = (
    *WORDS_OF_SCHEMA,
    *("if", "then", "else", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
)
TABLES = (*WORDS_OF_TABLE, "$defs", "definitions", "dependentSchemas")
MARKS = ("$dynamicAnchor", "$recursiveAnchor", "$vocabulary")


def tidied(schema: JsonSchema) -> JsonSchema:
    """Return a schema that allows the same and holds no word that allows everything."""
    made: JsonSchema = tidied_part(schema)
    if isinstance(made, dict) and "$id" in made and not refers_by_name(made):
        del made["$id"]
    return made


def tidied_part(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        word: tidied_value(word, value)
        for word, value in schema.items()
        if not says_nothing(word, value, schema)
    }


def tidied_value(word: str, value: Any) -> Any:
    if word in TABLES and isinstance(value, dict):
        return {name: tidied_part(part) for name, part in value.items()}
    if word in (*WORDS_OF_LIST, "items") and isinstance(value, list):
        return [tidied_part(part) for part in value]
    if word in SUBSCHEMAS:
        return tidied_part(value)
    is_whole = word in COUNTS and isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and value < 2**31 else value


def says_nothing(word: str, value: object, schema: Schema) -> bool:
    rule = RULES.get(word)
    return rule is not None and rule(value, schema)


def allows_all(value: object) -> bool:
    return value is True or (isinstance(value, dict) and ANNOTATIONS.issuperset(value))


def allows_strings(value: object, _schema: Schema) -> bool:
    """Say whether a schema allows every name of a property, all of which are strings."""
    if allows_all(value):
        return True
    if not isinstance(value, dict) or not (ANNOTATIONS | {"type"}).issuperset(value):
        return False
    types = value.get("type")
    return types == "string" or (isinstance(types, list) and "string" in types)


def asks_for_none(table: object, _schema: Schema) -> bool:
    """Say whether no property of a table of dependencies brings a demand."""
    rows = table.values() if isinstance(table, dict) else [None]
    return all(row == [] or allows_all(row) for row in rows)


def counts_none(_value: object, schema: Schema) -> bool:
    """Say whether the words about `contains` count nothing."""
    return "contains" not in schema or (
        schema.get("minContains") == 0 and "maxContains" not in schema
    )


RULES: dict[str, Callable[[Any, Schema], bool]] = {
    **dict.fromkeys(MARKS, lambda _value, _schema: True),
    "$schema": lambda value, _schema: not (isinstance(value, str) and DIALECT.fullmatch(value)),
    "propertyNames": allows_strings,
    "unevaluatedProperties": lambda value, schema: (
        allows_all(value) or "additionalProperties" in schema
    ),
    "unevaluatedItems": lambda value, schema: (
        allows_all(value) or isinstance(schema.get("items"), (dict, bool))
    ),
    "not": lambda value, _schema: value is False,
    "if": lambda _value, schema: all(allows_all(schema.get(one, True)) for one in ("then", "else")),
    "then": lambda value, schema: allows_all(value) or "if" not in schema,
    "else": lambda value, schema: allows_all(value) or "if" not in schema,
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), asks_for_none),
    "uniqueItems": lambda value, _schema: value is False,
    "minProperties": lambda value, _schema: value == 0 and not isinstance(value, bool),
    "patternProperties": lambda value, _schema: value == {},
    **dict.fromkeys(("contains", "minContains", "maxContains"), counts_none),
}


def refers_by_name(value: object) -> bool:
    """Say whether a reference in a schema is no pointer or anchor of its own."""
    if isinstance(value, list):
        return any(map(refers_by_name, value))
    if not isinstance(value, dict):
        return False
    reference = value.get("$ref", "#")
    is_named = isinstance(reference, str) and not reference.startswith("#")
    return is_named or any(map(refers_by_name, value.values()))
