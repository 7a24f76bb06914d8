"""Requests for grammars that are made to take time and memory, of many kinds."""

import itertools
import random

LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def word(source, size):
    return "".join(source.choices(LETTERS, k=size))


def nested(depth, least):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": least}
    return schema


def crossed_patterns(seed):
    """Return a schema that takes longer to compile than is allowed."""
    rows = [{"type": "string", "pattern": f"(.*a){{{number}}}"} for number in range(5, 45)]
    return {"allOf": rows, "title": str(seed)}


def laughs(source):
    names = [word(source, 6) for _ in range(25)]
    tables = {
        name: {"anyOf": [{"$ref": f"#/$defs/{after}"}, {"type": "array", "items": {"$ref": "#"}}]}
        for name, after in itertools.pairwise(names)
    }
    return {"$defs": {**tables, names[-1]: {}}, "$ref": f"#/$defs/{names[0]}"}


def optional_arguments(source):
    names = [word(source, 9) for _ in range(6)]
    schema = {"anyOf": [{"type": "integer", "minimum": 7}, {"type": "object"}, {"format": "no"}]}
    parameters = {"type": "object", "properties": dict.fromkeys(names, schema)}
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


def regex(pattern):
    return {"guided_regex": pattern}


def schema(table):
    return {"guided_json": table}


KINDS = {
    "a huge repeat": lambda source: regex(f"{word(source, 3)}a{{1000000}}"),
    "nested repeats": lambda source: regex(f"(({word(source, 2)}(x|yz){{900}}){{900}}){{900}}"),
    "a repeat that grows": lambda source: regex(
        f"({word(source, 1)}?\\w{{1,8}}\\W{{1,3}}){{50000}}"
    ),
    "classes": lambda source: regex(f"({word(source, 4)}|\\p{{L}}\\p{{N}}[^\\p{{P}}]){{10000}}"),
    "an alternation": lambda source: regex("|".join(word(source, 12) for _ in range(9000))),
    "a choice": lambda source: {"guided_choice": [word(source, 20) for _ in range(4000)]},
    "an enumeration": lambda source: schema({"enum": [word(source, 60) for _ in range(2000)]}),
    "a long text": lambda source: schema({"const": word(source, 120_000)}),
    "patterns that cross": lambda source: schema(crossed_patterns(source.random())),
    "depth": lambda source: schema({**nested(60, source.randint(2, 99)), "title": word(source, 9)}),
    "properties": lambda source: schema(
        {"type": "object", "properties": {word(source, 12): {} for _ in range(4000)}}
    ),
    "references": lambda source: schema(laughs(source)),
    "arguments": lambda source: {"tools": optional_arguments(source), "tool_choice": "required"},
}


def requests(count, seed=0):
    """Yield (kind, fields of a chat request), no two of them alike."""
    source, kinds = random.Random(seed), list(KINDS)
    for at in range(count):
        kind = kinds[at % len(kinds)]
        yield kind, KINDS[kind](source)
