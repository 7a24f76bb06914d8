"""Tool calls: what the masks let through parses into valid arguments, in every spelling."""

from pathlib import Path

import jsonschema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from glm_engine.core.errors import BadInputError
from glm_engine.text.grammar import CallSpelling, GrammarCompiler
from glm_engine.text.template import ChatTemplate
from tests.python.text.grammar.rendering import calls_of, written
from tests.python.text.grammar.walks import (
    ENDING_IDS,
    VOCAB_SIZE,
    EagerCompiler,
    random_text,
    spelling,
    takes,
    tokenizer,
)

GLM_4_5 = CallSpelling("\n", "\n", "\n", "\n", "\n")
GLM_4_7 = CallSpelling()
SPELLINGS = {"capitals": spelling(), "GLM-4.5": GLM_4_5, "GLM-4.7": GLM_4_7}
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", 'a "quoted" one', "größe\n"]},
        "note": {"type": ["string", "null"]},
        "area": {"$ref": "#/$defs/area"},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {
        "area": {
            "type": "object",
            "properties": {"inner": {"$ref": "#/$defs/area"}, "km": {"type": "number"}},
            "required": ["km"],
            "additionalProperties": False,
        }
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}},
]
STRICT = {"name": "a", "strict": True}
NEITHER = {"allOf": [{"const": "a"}, {"const": "b"}]}
SETTINGS = settings(
    deadline=None,
    max_examples=25,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", params=SPELLINGS)
def spelled(request):
    found = EagerCompiler(
        GrammarCompiler(tokenizer(), VOCAB_SIZE, ENDING_IDS, SPELLINGS[request.param])
    )
    yield found
    found.close()


@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_what_the_masks_let_through_are_valid_calls(spelled, seed):
    calls = calls_of(random_text(spelled.tool_calls(TOOLS), seed), TOOLS)
    assert calls
    for name, arguments in calls:
        schema = {"weather": WEATHER, "now": {"maxProperties": 0}, "note": {}}[name]
        jsonschema.validate(arguments, schema)


VALID = [
    {"city": "Oslo", "days": 3},
    {"city": "", "days": 14, "note": "nothing", "flags": [True, False]},
    {"city": "a <b> </ arg_key> < tool_call>\n", "days": 1, "unit": "größe\n"},
    {"city": "日本", "days": 2, "unit": 'a "quoted" one', "area": {"inner": {"km": 1.5}, "km": 2}},
]
INVALID = [
    {"days": 3},
    {"city": "Oslo"},
    {"city": "Oslo", "days": "three"},
    {"city": "Oslo", "days": 0},
    {"city": "Oslo", "days": 3, "unit": "kelvin"},
    {"city": "Oslo", "days": 3, "area": {}},
    {"city": "Oslo", "days": 3, "other": "x"},
]


@pytest.mark.parametrize("arguments", VALID)
def test_valid_calls_are_let_through(spelled, arguments):
    text = written(spelled.spelling, "weather", arguments)
    assert takes(spelled.tool_calls(TOOLS), text)
    assert calls_of(text, TOOLS) == [("weather", arguments)]


@pytest.mark.parametrize("arguments", INVALID)
def test_others_are_not(spelled, arguments):
    assert not takes(spelled.tool_calls(TOOLS), written(spelled.spelling, "weather", arguments))


def test_names_and_numbers_of_calls(spelled):
    space = spelled.spelling
    now, note = written(space, "now", {}), written(space, "note", {"any key": "any\nvalue"})
    both = now + space.between_calls + note
    assert takes(spelled.tool_calls(TOOLS), both)
    assert takes(spelled.tool_calls(TOOLS), space.before_first + now)
    assert takes(spelled.tool_calls(TOOLS, name="note"), note)
    assert not takes(spelled.tool_calls(TOOLS, name="note"), now)
    assert not takes(spelled.tool_calls(TOOLS, at_most=1), both)
    assert takes(spelled.tool_calls(TOOLS, at_most=1), note)
    assert not takes(spelled.tool_calls(TOOLS, at_least=2), now)
    assert takes(spelled.tool_calls(TOOLS, at_least=2), both)
    for text in ("", "Hello", now + "Hello", written(space, "later", {})):
        assert not takes(spelled.tool_calls(TOOLS), text)


def test_text_and_then_calls_where_none_need_come(spelled):
    grammar, space = spelled.tool_calls(TOOLS, at_least=0), spelled.spelling
    now = written(space, "now", {})
    call = written(space, "weather", {"city": "Oslo", "days": 3})
    wrong = written(space, "weather", {"city": "Oslo", "days": "three"})
    thought = "<think>I see: {} <b>.</think>"
    for before in ("", "Hello.\n", thought, f"{thought}Well <tool>"):
        assert takes(grammar, before)
        assert takes(grammar, before + space.before_first + call + space.between_calls + now)
        assert not takes(grammar, before + wrong)
    for text in (now + "and then", "<tool_call>", "<arg_key>", "<|assistant|>"):
        assert not takes(grammar, text)
    assert not takes(spelled.tool_calls(TOOLS, at_least=0, at_most=1), call + now)


def test_calls_or_a_document(spelled):
    space = spelled.spelling
    grammar = spelled.calls_or_document(TOOLS, {"type": "object", "required": ["x"]})
    now = written(space, "now", {})
    for text in ('{"x": 1}', now, space.before_first + now + space.between_calls + now):
        assert takes(grammar, text)
    for text in ("{}", "Hello", now + "{}", '{"x": 1}' + now):
        assert not takes(grammar, text)
    with pytest.raises(BadInputError, match=r"^form#/items: Invalid type"):
        spelled.calls_or_document(TOOLS, {"items": {"type": "strin"}}, name="form")
    with pytest.raises(BadInputError, match=r"^schema#/\$defs/x: cannot match any text"):
        spelled.calls_or_document(
            TOOLS, {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}
        )
    with pytest.raises(BadInputError, match=r"^tools\[0\]\.function\.name"):
        spelled.calls_or_document([{"function": {"name": ""}}], {})


def test_keys_beside_the_named_ones_follow_their_schema(compiler):
    parameters = {
        "properties": {"a": {"type": "string"}},
        "required": ["a", "b"],
        "additionalProperties": {"type": "integer"},
    }
    grammar = compiler.tool_calls([{"function": {"name": "f", "parameters": parameters}}])
    assert takes(grammar, written(spelling(), "f", {"a": "x", "b": 1, "c": 2}))
    assert not takes(grammar, written(spelling(), "f", {"a": "x", "c": 2}))
    assert not takes(grammar, written(spelling(), "f", {"a": "x", "b": 1, "c": "z"}))


@pytest.mark.parametrize(
    ("parameters", "keys"),
    [
        ({}, ["a", "b c"]),
        ({"type": "object"}, ["a", "b c"]),
        ({"properties": {}}, ["a", "b c"]),
        ({"properties": {"a": {}}}, ["a"]),
        ({"additionalProperties": False}, []),
        (None, []),
    ],
)
def test_any_keys_may_come_where_none_is_named(compiler, parameters, keys):
    grammar = compiler.tool_calls([{"function": {"name": "f", "parameters": parameters}}])
    for key in ("a", "b c"):
        assert takes(grammar, written(spelling(), "f", {key: "x"})) == (key in keys)
    assert takes(grammar, written(spelling(), "f", {}))


def test_a_function_that_states_no_parameters_has_none(compiler):
    grammar = compiler.tool_calls([{"function": {"name": "f"}}])
    assert takes(grammar, written(spelling(), "f", {}))
    assert not takes(grammar, written(spelling(), "f", {"a": "x"}))


@pytest.mark.parametrize(
    ("tools", "name", "message"),
    [
        (TOOLS, "later", "no tool is named 'later'; the tools are: weather, now, note"),
        ([], None, "the tools are: none"),
        ([{"function": {"name": "a b"}}], None, r"tools\[0\]\.function\.name: expected 1 to 256"),
        (
            [{"function": {"name": "a", "parameters": []}}],
            None,
            r"tools\[0\]\.function\.parameters: expected an object, got list",
        ),
        (
            [{"function": {"name": "a", "parameters": {"type": "array"}}}],
            None,
            r"parameters#/type: expected object",
        ),
        (
            [{"function": {"name": "a", "parameters": {"anyOf": [{}]}, "strict": True}}],
            None,
            r"parameters#/anyOf: not supported in a strict tool",
        ),
        (
            [{"function": {"name": "a", "parameters": {"properties": {"x": {"enum": []}}}}}],
            None,
            None,
        ),
        (
            [{"function": {**STRICT, "parameters": {"properties": {"x": NEITHER}}}}],
            None,
            r"parameters#/properties/x: cannot match any text",
        ),
        (
            [{"function": {"name": "a", "parameters": {"properties": {"x": {"type": "strin"}}}}}],
            None,
            r"parameters#/properties/x: .*strin",
        ),
        (
            [{"function": {**STRICT, "parameters": {"properties": {"</arg_key>": {}}}}}],
            None,
            "contains </arg_key>",
        ),
        (
            [
                TOOLS[1],
                {
                    "function": {
                        "name": "a",
                        "strict": True,
                        "parameters": {
                            "properties": {
                                "x~y": {"type": "array", "items": {"type": "integer", "not": {}}}
                            }
                        },
                    }
                },
            ],
            None,
            r'tools\[1\]\.function\.parameters#/properties/x~0y: .*"not"',
        ),
    ],
)
def test_bad_tools_are_refused_at_their_place(compiler, tools, name, message):
    if message is None:
        assert takes(compiler.tool_calls(tools), written(spelling(), "a", {}))
        return
    with pytest.raises(BadInputError, match=message):
        compiler.tool_calls(tools, name)


def template_of(folder: Path, text: str) -> ChatTemplate:
    (folder / "chat_template.jinja").write_text(text)
    return ChatTemplate(folder)


CALLS_4_5 = """<|assistant|>
<think></think>
{%- for m in messages[1:] %}{% for tc in m.tool_calls %}{% set tc = tc.function %}
{{ '\n<tool_call>' + tc.name }}
{% for k, v in tc.arguments.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}{% endfor %}"""
CALLS_4_7 = """<|assistant|></think>
{%- for m in messages[1:] %}{% for tc in m.tool_calls %}{% set tc = tc.function -%}
{{ '<tool_call>' + tc.name -}}{%- for k, v in tc.arguments.items() -%}
<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>
{%- endfor %}{% endfor %}"""


def test_the_spelling_is_read_from_the_template(tmp_path):
    assert spelling() == CallSpelling("", "\n", "\n", "\n", "")
    assert CallSpelling.of_template(template_of(tmp_path, CALLS_4_5)) == GLM_4_5
    assert CallSpelling.of_template(template_of(tmp_path, CALLS_4_7)) == GLM_4_7


@pytest.mark.parametrize("text", ["no calls", CALLS_4_7.replace("<arg_key>", "<key>")])
def test_a_template_that_spells_calls_otherwise_is_refused(tmp_path, text):
    with pytest.raises(BadInputError, match=r"in neither the GLM-4\.5 nor the GLM-4\.7 format"):
        CallSpelling.of_template(template_of(tmp_path, text))


def test_without_a_spelling_no_call_can_be_required():
    compiler = GrammarCompiler(tokenizer(), VOCAB_SIZE, ENDING_IDS)
    with pytest.raises(BadInputError, match="cannot enforce tool calls"):
        compiler.tool_calls(TOOLS)
    compiler.close()
