"""Random schemas: what the masks let through is valid, and what is valid they let through."""

import json
import random

import jsonschema
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.python.text.grammar.walks import random_text, refused_at

SETTINGS = settings(
    deadline=None,
    max_examples=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=6)
KEYS = st.sampled_from(["a", "capital", "größe", "a b", 'q"', "\n", "日本", "</ think>", "$ref?"])
SCALARS = st.none() | st.booleans() | st.integers(-999, 999) | WORDS


def bounds(low: str, high: str, most: int):
    pairs = st.lists(st.integers(0, most), min_size=2, max_size=2).map(sorted)
    return pairs.map(lambda pair: {low: pair[0], high: pair[1]}) | st.just({})


def typed(name: str, *parts):
    return st.tuples(*parts).map(
        lambda rows: {"type": name} | {k: v for r in rows for k, v in r.items()}
    )


LEAVES = st.one_of(
    st.sampled_from([{"type": "null"}, {"type": "boolean"}, {"type": ["integer", "null"]}]),
    typed("integer", bounds("minimum", "maximum", 500)),
    typed("number", bounds("minimum", "maximum", 500)),
    typed("string", bounds("minLength", "maxLength", 8)),
    st.sampled_from(["^[a-c]{2,4}$", "^x", "^(é|ß)x$", "^\\d{4}-\\d{2}$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.lists(SCALARS, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    SCALARS.map(lambda value: {"const": value}),
    st.just({"$ref": "#/$defs/tree"}),
)


@st.composite
def objects(draw, inner):
    properties = draw(st.dictionaries(KEYS, inner, max_size=3))
    required = [key for key in properties if draw(st.booleans())]
    other = draw(st.booleans() | inner)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": other,
    }


def arrays(inner):
    return typed("array", inner.map(lambda one: {"items": one}), bounds("minItems", "maxItems", 3))


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: (
        objects(inner)
        | arrays(inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda rows: {"anyOf": rows})
    ),
    max_leaves=6,
)
TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def whole(schema: dict) -> dict:
    return {**schema, "$defs": {"tree": TREE}}


def value_of(schema: dict, source: random.Random, depth: int = 0):
    """A value that the schema allows, its keys in the schema's order."""
    if "$ref" in schema:
        return value_of(TREE, source, depth)
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("anyOf") or schema.get("enum"):
        chosen = source.choice(choices)
        return value_of(chosen, source, depth + 1) if "anyOf" in schema else chosen
    return VALUES[str(schema["type"])](schema, source, depth)


def object_of(schema: dict, source: random.Random, depth: int) -> dict:
    return {
        key: value_of(part, source, depth + 1)
        for key, part in schema["properties"].items()
        if key in schema["required"] or (depth < 3 and source.random() < 0.7)
    }


def array_of(schema: dict, source: random.Random, depth: int) -> list:
    least = schema.get("minItems", 0)
    length = least if depth > 3 else source.randint(least, schema.get("maxItems", 3))
    return [value_of(schema["items"], source, depth + 1) for _ in range(length)]


def string_of(schema: dict, source: random.Random, _depth: int) -> str:
    if "pattern" in schema:
        return {
            "^[a-c]{2,4}$": "abc",
            "^x": 'x"\\\n',
            "^(é|ß)x$": "ßx",
            "^\\d{4}-\\d{2}$": "2026-11",
        }[schema["pattern"]]
    length = source.randint(schema.get("minLength", 0), schema.get("maxLength", 9))
    return "".join(source.choice('ab é"\\\n\t/<日🙂\x01') for _ in range(length))


def number_of(schema: dict, source: random.Random, _depth: int) -> float:
    least, most = schema.get("minimum", -0.5), schema.get("maximum", 1.25e10)
    return source.choice([least, most, (least + most) / 2]) if least < most else least


VALUES = {
    "null": lambda *_: None,
    "boolean": lambda _, source, __: source.random() < 0.5,
    "['integer', 'null']": lambda _, source, __: source.choice([None, 0, -17, 10**12]),
    "integer": lambda s, source, _: source.randint(s.get("minimum", -5), s.get("maximum", 10**9)),
    "number": number_of,
    "string": string_of,
    "object": object_of,
    "array": array_of,
}


@SETTINGS
@given(schema=SCHEMAS.map(whole), seed=st.integers(0, 2**32))
def test_what_the_masks_let_through_is_valid(compiler, schema, seed):
    text = random_text(compiler.json_schema(schema), seed)
    jsonschema.validate(json.loads(text), schema)


@SETTINGS
@given(
    schema=SCHEMAS.map(whole),
    seed=st.integers(0, 2**32),
    style=st.sampled_from([{}, {"indent": 2}, {"separators": (",", ":")}]),
)
def test_what_is_valid_is_let_through(compiler, schema, seed, style):
    document = value_of(schema, random.Random(seed))
    jsonschema.validate(document, schema)
    text = json.dumps(document, ensure_ascii=False, **style)
    grammar = compiler.json_schema(schema, any_whitespace="indent" in style)
    assert refused_at(grammar, text) is None, text
