"""Arguments by random and by common schemas: calls that the masks let through are valid."""

import json
import random

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from glm_engine.text.dialogue.schema import parameters_of
from tests.python.text.grammar.rendering import calls_of, written
from tests.python.text.grammar.test_schemas_at_random import SCHEMAS, SETTINGS, TREE, value_of
from tests.python.text.grammar.walks import random_text, refused_at, spelling, takes

NAME = "paint"
NOT_ENFORCED_IN_BARE_TEXT = ("pattern", "minLength", "maxLength")
COLOUR = {"type": "string", "enum": ["red", "green"]}
REFERENCE = {"$ref": "#/$defs/colour"}
NULL = {"type": "null"}
BOX = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def tools_of(parameters):
    return [{"type": "function", "function": {"name": NAME, "parameters": parameters}}]


def parameters_with(properties, required):
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "$defs": {"tree": TREE, "colour": COLOUR},
    }


def one_argument(schema):
    return tools_of(parameters_with({"it": schema}, ["it"]))


def bare(schema):
    """Return a schema without what is not enforced where it is a text of its own."""
    kept = {word: row for word, row in schema.items() if word not in NOT_ENFORCED_IN_BARE_TEXT}
    return {**kept, "anyOf": [*map(bare, kept["anyOf"])]} if "anyOf" in kept else kept


@st.composite
def parameters(draw):
    names = st.sampled_from(["a", "größe", "a b", "日本"])
    properties = draw(st.dictionaries(names, SCHEMAS.map(bare), min_size=1, max_size=3))
    return parameters_with(properties, [key for key in properties if draw(st.booleans())])


@SETTINGS
@given(schema=parameters(), seed=st.integers(0, 2**32))
def test_random_parameters_are_kept(compiler, schema, seed):
    tools = tools_of(schema)
    grammar = compiler.tool_calls(tools, at_most=1)
    [(_, arguments)] = calls_of(random_text(grammar, seed), tools)
    jsonschema.validate(arguments, schema)


@SETTINGS
@given(schema=parameters(), seed=st.integers(0, 2**32))
def test_random_valid_arguments_are_let_through(compiler, schema, seed):
    """All but those whose text reads as other arguments, as of "1" where 1 may stand, too."""
    source, tools = random.Random(seed), tools_of(schema)
    arguments = {key: value_of(row, source) for key, row in schema["properties"].items()}
    text = written(spelling(), NAME, arguments)
    assume(calls_of(text, tools) == [(NAME, arguments)])
    assert refused_at(compiler.tool_calls(tools), text) is None, text


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (COLOUR, ["red", "green"], ["", "blue", "null"]),
        (REFERENCE, ["red"], ["", "blue", "null"]),
        ({"allOf": [REFERENCE], "default": "red"}, ["red"], ["", "blue"]),
        ({"anyOf": [REFERENCE, NULL], "default": None}, ["red", "null"], ["", "blue"]),
        ({"anyOf": [COLOUR, NULL]}, ["green", "null"], ["", "blue"]),
        ({"type": ["string", "null"], "enum": ["red", None]}, ["red", "null"], ["", "blue"]),
        ({"enum": ["red", 1]}, ["red", "1"], ["", "2", "blue"]),
        ({"anyOf": [{"const": "red"}, {"const": "green"}]}, ["green"], ["", "blue"]),
        ({"type": "string", "oneOf": [{"const": "red"}, {"const": "x"}]}, ["x"], ["", "blue"]),
        ({"type": "string", "enum": ["1", "2"]}, ["1"], ["", "3"]),
        ({"type": "number", "enum": [1, 2.5]}, ["1", "2.5"], ["", "2"]),
        ({"type": ["string", "null"]}, ["", "null", "nul", "12", "{}"], [" null", "null\n"]),
        (
            {"type": ["string", "integer"], "minimum": 5},
            ["5", "12", "abc", "3x", "1.5", "", "[a]"],
            ["3", "-7", " 4 "],
        ),
        ({"type": ["string", "number"], "maximum": 5}, ["5", "1.5", "01", "-3"], ["6", "7.5"]),
        ({"type": ["string", "boolean"]}, ["true", "truely"], [" true"]),
        (
            {"anyOf": [BOX, {"type": "string"}]},
            ['{"a": 1}', "a {", "[1]", "7"],
            ["{", "{}", '{"a": "b"}'],
        ),
        (
            {"anyOf": [{"type": "array", "items": REFERENCE}, {"type": "string"}]},
            ['["red", "green"]', "red", "{"],
            ["[", '["blue"]'],
        ),
        ({}, ["", "5", "{", "[1]", '""', "null"], []),
    ],
)
def test_common_forms_of_an_argument(compiler, schema, valid, invalid):
    tools = one_argument(schema)
    grammar = compiler.tool_calls(tools)
    for text in valid:
        call = written(spelling(), NAME, {"it": text})
        assert takes(grammar, call), text
        [(_, arguments)] = calls_of(call, tools)
        jsonschema.validate(arguments, tools[0]["function"]["parameters"])
    for text in invalid:
        assert not takes(grammar, written(spelling(), NAME, {"it": text})), text


def test_parameters_that_are_a_reference(compiler):
    inner = parameters_with({"it": REFERENCE, "next": {"anyOf": [{"$ref": "#"}, NULL]}}, ["it"])
    schema = {"$ref": "#/$defs/more", "$defs": {**inner.pop("$defs"), "more": inner}}
    tools = tools_of(schema)
    assert parameters_of(tools)[NAME]["properties"] == inner["properties"]
    grammar = compiler.tool_calls(tools)
    for arguments in ({"it": "red"}, {"it": "red", "next": {"it": "green", "next": None}}):
        text = written(spelling(), NAME, arguments)
        assert takes(grammar, text), text
        assert calls_of(text, tools) == [(NAME, json.loads(json.dumps(arguments)))]
    for arguments in ({}, {"it": "blue"}, {"it": "red", "next": {"it": "blue"}}):
        assert not takes(grammar, written(spelling(), NAME, arguments))


@pytest.mark.parametrize("reference", ["#/$defs/loop", "#/$defs/absent", "https://elsewhere/x"])
def test_references_that_lead_nowhere(compiler, reference):
    schema = {"$ref": reference, "$defs": {"loop": {"$ref": "#/$defs/loop"}}}
    assert takes(compiler.tool_calls(tools_of(schema)), written(spelling(), NAME, {"x": "y"}))
