"""The types that a tool's schema gives to an argument, and the JSON that comes of its text."""

import json

import pytest

from glm_engine.dialogue.schema import argument_types, parameters_of
from tests.python.dialogue.folding import folded, parsed

DEFINITIONS = {
    "city": {"type": "string"},
    "loop": {"anyOf": [{"$ref": "#/$defs/loop"}] * 20},
    "wide": {"anyOf": [{"$ref": f"#/$defs/wide{at % 4}"} for at in range(8)]},
    **{
        f"wide{at}": {"anyOf": [{"$ref": f"#/$defs/wide{to % 4}"} for to in range(8)]}
        for at in range(4)
    },
    "a/b~c": {"type": "integer"},
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"string", "integer"}),
        ({"oneOf": [{"const": "a"}, {"const": 1}]}, {"string", "integer"}),
        ({"enum": ["a", "b"]}, {"string"}),
        ({"enum": ["a", None, 1.5]}, {"string", "null", "number"}),
        ({"enum": [True, [1], {}]}, {"boolean", "array", "object"}),
        ({"type": ["string", "integer"], "enum": ["a"]}, {"string"}),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, {"string"}),
        ({"$ref": "#/$defs/city"}, {"string"}),
        ({"$ref": "#/$defs/a~1b~0c"}, {"integer"}),
        ({"$ref": "#/$defs/absent"}, None),
        ({"$ref": "#/$defs/loop"}, None),
        ({"$ref": "#/$defs/wide"}, None),
        ({"$ref": "https://elsewhere/schema"}, None),
        ({"anyOf": [{"type": "string"}, {}]}, None),
        ({"description": "anything"}, None),
        (True, None),
        ({"type": 3, "enum": "x", "anyOf": {}}, None),
    ],
)
def test_types(schema, expected):
    parameters = {"properties": {"a": schema}, "$defs": DEFINITIONS}
    assert argument_types(parameters, "a") == expected


@pytest.mark.parametrize("parameters", [None, {}, {"properties": None}, {"properties": {}}, "x"])
def test_no_schema(parameters):
    assert argument_types(parameters, "a") is None


def test_additional_properties():
    parameters = {"properties": {"a": {}}, "additionalProperties": {"type": "string"}}
    assert argument_types(parameters, "b") == {"string"}
    assert argument_types(parameters, "a") is None


def test_parameters_by_name():
    nested = {"type": "function", "function": {"name": "f", "parameters": {"x": 1}}}
    assert parameters_of([nested, {"name": "g", "parameters": {}}]) == {"f": {"x": 1}, "g": {}}


STRING = {"type": "string"}
NULLABLE = {"type": ["string", "null"]}
NUMBER_OR_STRING = {"anyOf": [{"type": "number"}, {"type": "string"}]}
INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRING, "123", "123"),
        (STRING, ' {"a": 1}\n', ' {"a": 1}\n'),
        (NULLABLE, "null", None),
        (NULLABLE, "123", "123"),
        (NULLABLE, '"x"', '"x"'),
        (NULLABLE, " x ", " x "),
        (NUMBER_OR_STRING, "5", 5),
        (NUMBER_OR_STRING, "5.5", 5.5),
        (NUMBER_OR_STRING, "true", "true"),
        (INTEGER, " 5\n", 5),
        (INTEGER, "five ", "five "),
        (INTEGER, '"5"', "5"),
        (INTEGER, "123456789012345678901234567890", 123456789012345678901234567890),
        ({"type": "object"}, '{"a": [1, null]}', {"a": [1, None]}),
        ({"type": "object"}, "{'a': 1}", "{'a': 1}"),
        ({"type": "boolean"}, "True", "True"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        (None, "5", 5),
        (None, "[1]", [1]),
        (None, '"x"', '"x"'),
        (None, "x", "x"),
        (None, "", ""),
        (None, "NaN", "NaN"),
        (None, "[-Infinity]", "[-Infinity]"),
        (INTEGER, "7" * 400, int("7" * 400)),
        ({"type": "array"}, f"[{10**400}, -0.5e400]", [10**400, float("-inf")]),
        (None, "[" * 5000 + "]" * 5000, "[" * 5000 + "]" * 5000),
    ],
)
def test_values(schema, text, expected):
    tools = [{"function": {"name": "f", "parameters": {"properties": {"a": schema}}}}]
    turn = f"<tool_call>f<arg_key>a</arg_key><arg_value>{text}</arg_value></tool_call>"
    [call] = folded(parsed(turn, tools=tools if schema else ()))
    value = json.loads(call[2])["a"]
    assert value == expected
    assert type(value) is type(expected)
