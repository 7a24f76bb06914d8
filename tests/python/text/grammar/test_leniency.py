"""What cannot be enforced, left out where nobody is strict and refused at its place elsewhere; what
says nothing, taken by all."""

import json

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.text.grammar.tidying import tidied
from tests.python.text.grammar.rendering import written
from tests.python.text.grammar.walks import spelling, takes

AHEAD = r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z]+$"
DECIMAL = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": r"^(?!^[-+.]*$)[0-9.]*$"}]}
STRING = {"type": "string"}
UNENFORCEABLE = {
    "look-ahead": ({**STRING, "pattern": AHEAD}, "a"),
    "look-behind": ({**STRING, "pattern": "(?<!a)b"}, "a"),
    "a reference back": ({**STRING, "pattern": r"(a)\1"}, "x"),
    "an expression of another dialect": ({**STRING, "pattern": r"\cA"}, "x"),
    "no expression": ({**STRING, "pattern": "("}, "x"),
    "a pattern that is a number": ({**STRING, "pattern": 5}, "x"),
    "an email of zod": ({**STRING, "format": "email", "pattern": AHEAD}, "a@b.cd"),
    "a decimal of pydantic": (DECIMAL, "x"),
    "an unknown format": ({**STRING, "format": "shape"}, "x"),
    "a condition": ({"if": STRING, "then": {"minLength": 3}}, "x"),
    "a negation": ({"not": STRING}, "x"),
    "a negation of all": ({"not": {}}, 1),
    "keys by pattern": ({"type": "object", "patternProperties": {"^(?!a)": STRING}}, {"b": 1}),
    "keys that depend": ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"a": 1}),
    "keys unevaluated": ({"type": "object", "unevaluatedProperties": False}, {"a": 1}),
    "names of keys": ({"type": "object", "propertyNames": {"pattern": "^(?=a)"}}, {"b": 1}),
    "unique items": ({"type": "array", "uniqueItems": True}, [1, 1]),
    "what is contained": ({"type": "array", "contains": {"const": 2}}, [1]),
    "a great length": ({**STRING, "minLength": 1e20}, "x"),
    "a length below zero": ({**STRING, "minLength": -1}, "x"),
    "bounds that exclude all": ({"type": "integer", "minimum": 5, "maximum": 3}, 1),
    "lengths that exclude all": ({**STRING, "minLength": 5, "maxLength": 3}, "ab"),
    "counts that exclude all": ({"type": "array", "minItems": 5, "maxItems": 3}, [1]),
    "types that exclude all": ({"allOf": [STRING, {"type": "null"}]}, 1),
    "an empty enumeration": ({"enum": []}, 1),
    "no alternative": ({"anyOf": []}, 1),
    "a multiple of nothing": ({"type": "integer", "multipleOf": 0}, 7),
    "a multiple that is too long": ({"type": "integer", "multipleOf": 10**12 + 1}, 7),
    "a constant against its pattern": ({"const": "abc", "pattern": "^x"}, "abc"),
    "alternatives that overlap": ({"oneOf": [STRING, {"minLength": 3}]}, "abcd"),
    "a reference to nothing": ({"$ref": "#/$defs/none"}, 1),
    "a reference to elsewhere": ({"$ref": "https://x.y/z"}, 1),
    "a reference to itself": ({"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}, 1),
    "a dynamic reference": ({"$dynamicRef": "#x"}, 1),
    "a required key that may not be": (
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {},
    ),
    "required as in the third draft": ({"type": "object", "required": True}, {}),
    "nulls for words": ({**STRING, "format": None, "pattern": None, "enum": None}, "x"),
}
PLACES = {
    "alone": (lambda part: part, lambda value: value),
    "a property": (
        lambda part: {"type": "object", "properties": {"in": part}, "required": ["in"]},
        lambda value: {"in": value},
    ),
    "an item": (lambda part: {"type": "array", "items": part}, lambda value: [value, value]),
    "an alternative": (lambda part: {"anyOf": [{"const": None}, part]}, lambda value: value),
    "behind a reference": (
        lambda part: {
            "$defs": {"a/b~c": part},
            "type": "array",
            "items": {"$ref": "#/$defs/a~1b~0c"},
        },
        lambda value: [value],
    ),
}
EXCLUDING = [name for name in UNENFORCEABLE if "exclude" in name] + [
    *("an empty enumeration", "no alternative", "a constant against its pattern"),
    "a required key that may not be",
]
SELF_CONTAINED = [
    name
    for name, (part, _) in UNENFORCEABLE.items()
    if not str(part.get("$ref", "")).startswith("#") and "$dynamicRef" not in part
]
BEHIND = [(place, name) for place in PLACES for name in UNENFORCEABLE]


@pytest.mark.parametrize(("place", "name"), BEHIND)
def test_a_schema_that_is_not_strict_leaves_it_out(compiler, place, name):
    (part, value), (around, inside) = UNENFORCEABLE[name], PLACES[place]
    if place != "alone" and name not in SELF_CONTAINED:
        part = {"$ref": "#/$defs/none"}
    grammar = compiler.json_schema(around(part), strict=False)
    may_be_left_out = name in EXCLUDING and place not in ("alone", "a property")
    assert may_be_left_out or takes(grammar, json.dumps(inside(value)))


@pytest.mark.parametrize("name", UNENFORCEABLE)
def test_a_strict_schema_names_the_place(compiler, name):
    part, _ = UNENFORCEABLE[name]
    is_inside = name in SELF_CONTAINED and name not in EXCLUDING
    place = "/items" if is_inside else r"(/\$defs/x|/anyOf/1)?"
    with pytest.raises(BadInputError, match=f"^schema#{place}"):
        compiler.json_schema({"items": part} if is_inside else part)


@pytest.mark.parametrize("name", UNENFORCEABLE)
def test_a_tool_that_is_not_strict_leaves_it_out(compiler, name):
    part, value = UNENFORCEABLE[name]
    for schema, given in (
        ({"type": "array", "items": part}, [value]),
        ({"type": "object", "properties": {"x": part}}, {"x": value}),
    ):
        if name not in SELF_CONTAINED:
            schema = {**schema, "$ref": "#/$defs/none"}
        parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        grammar = compiler.tool_calls([{"function": {"name": "f", "parameters": parameters}}])
        assert name in EXCLUDING or takes(grammar, written(spelling(), "f", {"a": given}))


@pytest.mark.parametrize("name", UNENFORCEABLE)
def test_the_parameters_of_a_tool_that_is_not_strict_leave_it_out(compiler, name):
    part, _ = UNENFORCEABLE[name]
    if part.get("type", "object") != "object":
        part = {"type": "object", "additionalProperties": part}
    grammar = compiler.tool_calls([{"function": {"name": "f", "parameters": part}}])
    assert "required" in part or takes(grammar, written(spelling(), "f", {}))


@pytest.mark.parametrize("name", UNENFORCEABLE)
def test_calls_or_a_document_leave_it_out(compiler, name):
    part, value = UNENFORCEABLE[name]
    tool = {"function": {"name": "f", "parameters": {"properties": {"a": {"items": part}}}}}
    grammar = compiler.calls_or_document([tool], part, strict=False)
    assert takes(grammar, json.dumps(value))
    assert takes(grammar, written(spelling(), "f", {}))


def test_what_can_be_enforced_stays(compiler):
    schema = {
        "type": "object",
        "properties": {"mail": {**STRING, "pattern": AHEAD}, "n": {"type": "integer"}},
        "required": ["mail", "n"],
        "additionalProperties": False,
    }
    grammar = compiler.json_schema(schema, strict=False)
    assert takes(grammar, '{"mail": "x", "n": 1}')
    for wrong in ('{"mail": 1, "n": 1}', '{"mail": "x", "n": "1"}', '{"mail": "x"}'):
        assert not takes(grammar, wrong)


def test_strict_and_lenient_tools_side_by_side(compiler):
    def tool(name, **more):
        items = {"type": "array", "items": {**STRING, "pattern": AHEAD}}
        return {"function": {"name": name, "parameters": {"properties": {"a": items}}, **more}}

    with pytest.raises(BadInputError, match=r"^tools\[1\]\.function\.parameters#/properties/a"):
        compiler.tool_calls([tool("f"), tool("g", strict=True)])
    with pytest.raises(BadInputError, match=r"^form#/items: look-around"):
        compiler.calls_or_document([tool("f")], {"items": {"pattern": AHEAD}}, name="form")


def test_what_is_no_schema_is_refused_in_any_case(compiler):
    for part in ({"type": "strin"}, {"type": "strin", "pattern": AHEAD}):
        with pytest.raises(BadInputError, match=r"^schema#/items"):
            compiler.json_schema({"items": part}, strict=False)


def test_a_schema_that_costs_too_much_leaves_its_type(compiler):
    costly = {"type": "object", "properties": {f"p{at}": {} for at in range(6000)}}
    grammar = compiler.json_schema(costly, strict=False)
    assert takes(grammar, '{"q": 1}')
    assert not takes(grammar, "[]")
    tool = {"function": {"name": "f", "parameters": {"properties": {"a": costly}}}}
    assert takes(compiler.tool_calls([tool]), written(spelling(), "f", {"a": "x"}))


SAYS_NOTHING = [
    {"propertyNames": {"type": "string"}},
    {"propertyNames": {}},
    {"propertyNames": True},
    {"propertyNames": {"type": ["string", "null"], "description": "a name"}},
    {"unevaluatedProperties": True},
    {"unevaluatedProperties": {}},
    {"unevaluatedItems": True},
    {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": False},
    {"additionalProperties": {}},
    {"additionalProperties": True},
    {"items": {"type": "integer"}, "unevaluatedItems": False},
    {"minProperties": 0},
    {"minItems": 0, "minLength": 0},
    {"minItems": 0.0, "maxLength": 9.0},
    {"uniqueItems": False},
    {"not": False},
    {"if": {"minProperties": 1}},
    {"if": {}, "then": {}, "else": True},
    {"then": {"type": "string"}, "else": False},
    {"dependencies": {}, "dependentRequired": {}, "dependentSchemas": {}},
    {"dependentRequired": {"a": []}, "dependentSchemas": {"a": True}},
    {"patternProperties": {}},
    {"minContains": 1, "maxContains": 2},
    {"contains": {"const": 1}, "minContains": 0},
    {"$schema": "https://x.y/own", "$id": "https://x.y/z", "$comment": "x", "$anchor": "y"},
    {"$schema": "http://json-schema.org/draft-07/schema#"},
    {"$dynamicAnchor": "x", "$recursiveAnchor": True, "$vocabulary": {}},
    {"title": "t", "description": "d", "default": 1, "examples": [1], "deprecated": True},
    {"readOnly": True, "writeOnly": False, "x-order": 1, "nullable": True, "x-unit": "m"},
    {"contentEncoding": "base64", "contentMediaType": "text/plain", "contentSchema": {}},
]


@pytest.mark.parametrize("words", SAYS_NOTHING, ids=str)
def test_words_that_say_nothing_are_taken_by_what_is_strict(compiler, words):
    schema = {"type": "object", **words}
    assert takes(compiler.json_schema(schema), '{"a": 1}')
    inside = {"type": "object", "properties": {"in": schema}, "additionalProperties": False}
    assert takes(compiler.json_schema(inside), '{"in": {"a": 1}}')
    for parameters, given in ((inside, {"in": {"a": 1}}), (schema, {"a": 1})):
        function = {"name": "f", "parameters": parameters, "strict": True}
        grammar = compiler.tool_calls([{"function": function}])
        assert takes(grammar, written(spelling(), "f", given))


def test_a_name_that_is_no_address_is_taken(compiler):
    assert takes(compiler.json_schema({"$id": "::none", "type": "null"}), "null")


def test_words_that_say_something_stay():
    for words in (
        {"propertyNames": {"type": "string", "minLength": 2}},
        {"propertyNames": {"type": "null"}},
        {"unevaluatedProperties": False},
        {"not": {}},
        {"not": True},
        {"if": {}, "then": False},
        {"uniqueItems": True},
        {"minProperties": 1},
        {"contains": {}},
        {"contains": {}, "minContains": 0, "maxContains": 1},
        {"dependentRequired": {"a": ["b"]}},
        {"properties": {"propertyNames": {}, "not": False, "then": {}}},
        {"const": {"propertyNames": {}}, "enum": [{"not": False}]},
        {"$id": "https://x.y/z", "$ref": "https://x.y/z#/$defs/a"},
    ):
        assert tidied(words) == words
