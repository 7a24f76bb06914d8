"""Which JSON types a tool's schema gives an argument."""

import json

import orjson

TYPE_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}
DEEPEST = 16


def parameters_of(tools):
    """Return the schema of the parameters of each tool, by the tool's name.

    tools: the OpenAI list, `{"type": "function", "function": {"name", "parameters"}}`.
    """
    functions = [tool.get("function", tool) for tool in tools]
    return {function.get("name"): function.get("parameters") for function in functions}


def argument_types(parameters, key):
    """Return the names of the JSON types that argument `key` may have; None: nobody says."""
    if not isinstance(parameters, dict):
        return None
    properties = parameters.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    schema = properties.get(key, parameters.get("additionalProperties"))
    return TypeFinder(parameters).types(schema)


class TypeFinder:
    """Finds the types that schemas allow; each reference into the root is followed once."""

    def __init__(self, root):
        self.root = root
        self.referred = {}

    def types(self, schema, depth=0):
        """Return the types that a schema allows, None where it does not restrict them."""
        if not isinstance(schema, dict) or depth > DEEPEST:
            return None
        found = [stated_types(schema), valued_types(schema)]
        if isinstance(schema.get("$ref"), str):
            found.append(self.types_referred(schema["$ref"], depth))
        for word in ("anyOf", "oneOf"):
            found.append(united([self.types(row, depth + 1) for row in rows(schema, word)]))
        found += [self.types(row, depth + 1) for row in rows(schema, "allOf")]
        known = [types for types in found if types is not None]
        return frozenset.intersection(*known) if known else None

    def types_referred(self, reference, depth):
        if reference not in self.referred:
            self.referred[reference] = None
            self.referred[reference] = self.types(referred(reference, self.root), depth + 1)
        return self.referred[reference]


def stated_types(schema):
    stated = schema.get("type")
    if isinstance(stated, str):
        return frozenset([stated])
    if isinstance(stated, list):
        return frozenset(name for name in stated if isinstance(name, str))
    return None


def valued_types(schema):
    values = [schema["const"]] if "const" in schema else rows(schema, "enum")
    return frozenset(type_name(value) for value in values) if values else None


def united(alternatives):
    if not alternatives or None in alternatives:
        return None
    return frozenset().union(*alternatives)


def rows(schema, word):
    found = schema.get(word)
    return found if isinstance(found, list) else []


def referred(reference, root):
    """Return what a reference such as `#/$defs/city` points at; None if it is not in root."""
    if not reference.startswith("#"):
        return None
    place = root
    for part in reference[1:].split("/")[1:]:
        if not isinstance(place, dict):
            return None
        place = place.get(part.replace("~1", "/").replace("~0", "~"))
    return place


def type_name(value):
    return TYPE_NAMES.get(type(value), "string")


def is_string(types):
    """Say whether text is a string whatever it looks like."""
    return types == {"string"}


def parsed(text):
    """Return a value of the type that JSON text has; of numbers too large for a double, some one.

    ValueError or RecursionError where it is no JSON.
    """
    try:
        return orjson.loads(text)
    except ValueError:
        return json.loads(text, parse_int=len, parse_float=float, parse_constant=refused)


def refused(name):
    raise ValueError(f"{name} is no JSON")


def is_json_of(text, types):
    """Say whether the text of an argument is JSON of one of the types, not a bare string."""
    try:
        name = type_name(parsed(text))
    except (ValueError, RecursionError):
        return False
    may_be_string = types is None or "string" in types
    if name == "string" or not may_be_string:
        return not may_be_string
    return types is None or name in types or (name == "integer" and "number" in types)
