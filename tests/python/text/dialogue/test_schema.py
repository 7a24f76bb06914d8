"""The types that a tool's schema gives to an argument, and the JSON that comes of its text."""

import json

import pytest

from glm_engine.text.dialogue.schema import argument_types, parameters_of
from tests.python.text.dialogue.folding import folded, parsed

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
        (INTEGER, '"5"', 5),
        (INTEGER, '"five"', "five"),
        (INTEGER, "123456789012345678901234567890", 123456789012345678901234567890),
        ({"type": "object"}, '{"a": [1, null]}', {"a": [1, None]}),
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
    value = argument(schema, text)
    assert value == expected
    assert type(value) is type(expected)


def argument(schema, text):
    """The value that a client gets of an argument with this schema, and of this text."""
    tools = [{"function": {"name": "f", "parameters": {"properties": {"a": schema}}}}]
    turn = f"<tool_call>f<arg_key>a</arg_key><arg_value>{text}</arg_value></tool_call>"
    [call] = folded(parsed(turn, tools=tools if schema else ()))
    call[2].encode()
    return json.loads(call[2])["a"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a", {"a": "1"}),
        (" a\n", {"a": "1"}),
        (" b", {" b": 1}),
        ("b", {"b": "1"}),
        (" c ", {" c ": 1}),
    ],
)
def test_white_space_of_a_key_counts_where_a_property_has_it(key, expected):
    properties = {"a": STRING, " b": INTEGER, "b": STRING}
    tools = [{"function": {"name": "f", "parameters": {"properties": properties}}}]
    turn = f"<tool_call>f<arg_key>{key}</arg_key><arg_value>1</arg_value></tool_call>"
    for pieces in ([turn], turn):
        [call] = folded(parsed(pieces, tools=tools))
        assert json.loads(call[2]) == expected


BOOLEAN = {"type": "boolean"}
OBJECT = {"type": "object"}
ARRAY = {"type": "array"}
PATH = {"a": "C:\\new", "b": ["\n", "é"]}


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (BOOLEAN, "True", True),
        (BOOLEAN, " False\n", False),
        (BOOLEAN, '"true"', True),
        ({"type": ["integer", "null"]}, "None", None),
        ({"anyOf": [OBJECT, {"type": "null"}]}, "None", None),
        (OBJECT, "{'a': 1}", {"a": 1}),
        (OBJECT, "{'a': [True, None, 'it\\'s', \"é\"],}", {"a": [True, None, "it's", "é"]}),
        (OBJECT, "{1: '\\d'}", {"1": "\\d"}),
        (OBJECT, '{\\"a\\": 1}', {"a": 1}),
        (OBJECT, '{\\n  \\"a\\": 1\\n}', {"a": 1}),
        (OBJECT, '{\n  \\"a\\": 1\n}', {"a": 1}),
        (OBJECT, '"{\\"a\\": 1}"', {"a": 1}),
        (OBJECT, json.dumps(json.dumps(PATH)), PATH),
        (OBJECT, json.dumps(json.dumps(PATH))[1:-1], PATH),
        (ARRAY, "['a', 'b']", ["a", "b"]),
        (ARRAY, "('a', 2)", ["a", 2]),
        (ARRAY, "['\\n']", ["\n"]),
        (ARRAY, '[{\\"id\\": \\"1\\"}]', [{"id": "1"}]),
        (ARRAY, '"[1, 2]"', [1, 2]),
        (ARRAY, f"{[{'text': 'x' * 3000}] * 10}", [{"text": "x" * 3000}] * 10),
        ({"type": "number"}, "1_000.5", 1000.5),
        ({"$ref": "#/absent", "type": "array"}, "[None]", [None]),
    ],
)
def test_python_and_escaped_json_are_read_where_no_string_can_be(schema, text, expected):
    value = argument(schema, text)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        *((schema, "True") for schema in (STRING, NULLABLE, NUMBER_OR_STRING, None)),
        *((schema, "{'a': 1}") for schema in (STRING, NULLABLE, NUMBER_OR_STRING, None)),
        *((schema, '{\\"a\\": 1}') for schema in (STRING, NULLABLE, NUMBER_OR_STRING, None)),
        (INTEGER, "1,234"),
        (INTEGER, "None"),
        (OBJECT, "{1, 2}"),
        (OBJECT, "{(1, 2): 3}"),
        (OBJECT, "{'a': 1"),
        (OBJECT, "{'a': float('inf')}"),
        (OBJECT, "{'a': '\\ud800'}"),
        (OBJECT, '{\\"a\\": \\"\\ud800\\"}'),
        (OBJECT, "{'a': \x00}"),
        (ARRAY, "[1e999, None]"),
        (ARRAY, "[b'a']"),
        (ARRAY, "['a']*9"),
        (ARRAY, "[open('a')]"),
        (ARRAY, "[0x" + "f" * 9000 + "]"),
        (ARRAY, "[" * 150 + "'" + "]" * 150),
        (ARRAY, "-" * 30_000),
        (ARRAY, "[" + "'a', " * 20_000 + "]"),
        ({"type": "dict"}, "{'a': 1}"),
    ],
)
def test_what_is_no_such_value_stays_a_string(schema, text):
    assert argument(schema, text) == text
