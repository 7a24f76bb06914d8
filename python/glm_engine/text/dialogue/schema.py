"""Which JSON types a tool's schema gives an argument."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn

import orjson

from glm_engine.text.dialogue.tags import SPACES

Schema = dict[str, Any]
Allowed = frozenset[str] | None
Types = Allowed
TYPE_NAMES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
DEEPEST = 16


def parameters_of(tools: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    """Return the schema of the parameters of each tool, by the tool's name.

    tools: the OpenAI list, `{"type": "function", "function": {"name", "parameters"}}`.
    """
    functions = [tool.get("function", tool) for tool in tools]
    return {function.get("name"): resolved(function.get("parameters")) for function in functions}


def resolved(parameters: object) -> object:
    """Return the parameters of a tool; where they refer into themselves, what is meant.

    What stands beside `$ref` stays, `$defs` among it, so that other references hold.
    """
    found = parameters
    for _ in range(DEEPEST):
        if not isinstance(found, dict) or not isinstance(found.get("$ref"), str):
            break
        target = referred(found["$ref"], parameters)
        if not isinstance(target, dict):
            break
        beside = {word: value for word, value in found.items() if word != "$ref"}
        found = {**target, **beside}
    return found


def argument_types(parameters: object, key: str) -> Types:
    """Return the names of the JSON types that argument `key` may have; None: nobody says."""
    if not isinstance(parameters, dict):
        return None
    schema = properties_of(parameters).get(key, parameters.get("additionalProperties"))
    return types_of(schema, parameters)


def argument_name(parameters: object, key: str) -> str:
    """Return the property that a key means: its white space counts where a property has it."""
    bare, properties = key.strip(SPACES), properties_of(parameters)
    return bare if bare in properties and key not in properties else key


def properties_of(parameters: object) -> dict[str, Any]:
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    return properties if isinstance(properties, dict) else {}


def types_of(schema: object, root: object) -> Types:
    """Return the names of the JSON types that a schema in `root` allows; None: any."""
    finder = AllowedFinder(
        root, lambda one: [*map(widened, (stated_types(one), valued_types(one)))]
    )
    found = finder.find(schema)
    return found - {"integer"} if found and "number" in found else found


def strings_of(schema: object, root: object) -> Allowed:
    """Return the strings that a schema in `root` allows, None where it does not list them."""
    return AllowedFinder(root, lambda one: [listed_strings(one)]).find(schema)


class AllowedFinder:
    """Finds what schemas allow of something; each reference into the root is followed once.

    stated: the sets that a schema's own words allow, each None where they restrict nothing.
    """

    def __init__(self, root: object, stated: Callable[[Schema], list[Allowed]]) -> None:
        self.root = root
        self.stated = stated
        self.referred: dict[str, Allowed] = {}

    def find(self, schema: object, depth: int = 0) -> Allowed:
        """Return the set that a schema allows, None where it does not restrict it."""
        if not isinstance(schema, dict) or depth > DEEPEST:
            return None
        found = self.stated(schema)
        if isinstance(schema.get("$ref"), str):
            found.append(self.find_referred(schema["$ref"], depth))
        for word in ("anyOf", "oneOf"):
            found.append(united([self.find(row, depth + 1) for row in rows(schema, word)]))
        found += [self.find(row, depth + 1) for row in rows(schema, "allOf")]
        known = [one for one in found if one is not None]
        return frozenset.intersection(*known) if known else None

    def find_referred(self, reference: str, depth: int) -> Allowed:
        if reference not in self.referred:
            self.referred[reference] = None
            self.referred[reference] = self.find(referred(reference, self.root), depth + 1)
        return self.referred[reference]


def stated_types(schema: Schema) -> Types:
    stated = schema.get("type")
    if isinstance(stated, str):
        return frozenset([stated])
    if isinstance(stated, list):
        return frozenset(name for name in stated if isinstance(name, str))
    return None


def widened(types: Types) -> Types:
    """Return types of which each integer is a number, so that sets can be compared."""
    return types | {"integer"} if types and "number" in types else types


def valued_types(schema: Schema) -> Types:
    values = listed_values(schema)
    return frozenset(type_name(value) for value in values) if values else None


def listed_values(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else rows(schema, "enum")


def listed_strings(schema: Schema) -> Allowed:
    """Return the strings that `const` or `enum` lists; none where `type` allows no string."""
    types = stated_types(schema)
    if types is not None and "string" not in types:
        return frozenset()
    values = listed_values(schema)
    return frozenset(value for value in values if isinstance(value, str)) if values else None


def united(alternatives: Sequence[Allowed]) -> Allowed:
    known = [one for one in alternatives if one is not None]
    return frozenset().union(*known) if known and len(known) == len(alternatives) else None


def rows(schema: Schema, word: str) -> list[Any]:
    found = schema.get(word)
    return found if isinstance(found, list) else []


def referred(reference: str, root: object) -> object:
    """Return what a reference such as `#/$defs/city` points at; None if it is not in root."""
    if not reference.startswith("#"):
        return None
    place = root
    for part in reference[1:].split("/")[1:]:
        if not isinstance(place, dict):
            return None
        place = place.get(part.replace("~1", "/").replace("~0", "~"))
    return place


def type_name(value: object) -> str:
    return TYPE_NAMES.get(type(value), "string")


def is_string(types: Types) -> bool:
    """Say whether text is a string whatever it looks like."""
    return types == frozenset(["string"])


def parsed(text: str) -> Any:
    """Return a value of the type that JSON text has; of numbers too large for a double, some one.

    ValueError or RecursionError where it is no JSON.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text, parse_int=len, parse_float=float, parse_constant=refused)


def refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


def is_json_of(text: str, types: Types) -> bool:
    """Say whether the text of an argument is JSON of one of the types, not a bare string."""
    try:
        name = type_name(parsed(text))
    except (ValueError, RecursionError):
        return False
    may_be_string = types is None or "string" in types
    if name == "string" or not may_be_string:
        return not may_be_string
    return types is None or has_type(name, types)


def has_type(name: str, types: AbstractSet[str]) -> bool:
    """Say whether a value of the type `name` is one of the types."""
    return name in types or (name == "integer" and "number" in types)
