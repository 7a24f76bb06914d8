"""Answers that follow a schema, an expression, a choice or the form of a call."""

import enum
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer
from tests.server.openai.test_chat import ASKED, WEATHER, chat
from tests.server.serving import MODEL, QUESTION

CITY = {
    "type": "object",
    "properties": {
        "capital": {"type": "string", "maxLength": 12},
        "population": {"type": "integer", "minimum": 0, "maximum": 99_999},
        "kind": {"enum": ["city", "town"]},
    },
    "required": ["capital", "population", "kind"],
    "additionalProperties": False,
}
FORECAST = {
    "type": "function",
    "function": {
        "name": "forecast",
        "parameters": {
            "type": "object",
            "properties": {
                "unit": {"enum": ["celsius", "kelvin"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
            "required": ["unit", "days"],
        },
    },
}


THINK_END = 2038
TOOL_CALL = 2039
VALUE_END = 2046
ENDINGS = (2027, 2034, 2036)
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
NAMED = {"type": "function", "function": {"name": "forecast"}}
STRICT = {**FORECAST, "function": {**FORECAST["function"], "strict": True}}


PAIR = {
    "type": "object",
    "properties": {name: {"enum": [1, 2]} for name in "ab"},
    "required": ["a", "b"],
    "additionalProperties": False,
}
PAIRS = [json.dumps({"a": a, "b": b}) for a in (1, 2) for b in (1, 2)]
SPACES = {
    str(token): 50
    for text, token in GlmTokenizer(CAPITALS).vocabulary().items()
    if text and not text.strip("Ġ")
}


class Capital(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=16)
    continent: Literal["Africa", "Europe"]
    rank: int = pydantic.Field(ge=1, le=9)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Paint(pydantic.BaseModel):
    colour: Colour
    shade: Literal["dark", "light"] | None
    walls: int | Literal["all"]


def form(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "city", "schema": schema, **more}}


def content(client, **fields):
    answer = chat(client, **fields)
    assert answer.choices[0].finish_reason == "stop"
    return answer.choices[0].message.content


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_schema(client, is_strict) -> None:
    form_of_answer = form(CITY, strict=is_strict)
    jsonschema.validate(json.loads(content(client, response_format=form_of_answer)), CITY)


def test_a_pydantic_model(client) -> None:
    answer = client.chat.completions.parse(model=MODEL, messages=ASKED, response_format=Capital)
    assert isinstance(answer.choices[0].message.parsed, Capital)


def test_streamed_and_many_are_the_same_as_whole_and_alone(client) -> None:
    fields = {"response_format": form(CITY), "temperature": 1.0, "seed": 5}
    answers = chat(client, n=3, **fields).choices
    texts = [answer.message.content for answer in answers]
    for text in texts:
        jsonschema.validate(json.loads(text), CITY)
    streamed = ["", "", ""]
    for chunk in chat(client, n=3, stream=True, **fields):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_any_object(client) -> None:
    form_of_answer = {"type": "json_object"}
    answer = chat(client, response_format=form_of_answer, temperature=1.0, seed=3, max_tokens=400)
    choice = answer.choices[0]
    assert choice.message.content.startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)


@pytest.mark.parametrize("more", [{}, {"tools": [WEATHER]}])
def test_json_has_no_more_white_space_than_is_asked_for(client, start_server, more) -> None:
    """The model would write nothing else: each of its tokens of spaces is preferred."""
    with start_server("--any-whitespace").openai() as spaced:
        bias = {**SPACES, str(TOOL_CALL): -100}
        fields = {"response_format": form(PAIR), "logit_bias": bias, **more}
        assert content(client, **fields) in PAIRS
        for asked, any_whitespace in ((client, True), (spaced, False)):
            extra = {"structured_outputs": {"disable_any_whitespace": not any_whitespace}}
            text = content(asked, extra_body=extra, **fields)
            assert json.loads(text) in map(json.loads, PAIRS)
            assert (text in PAIRS) != any_whitespace
        assert len(content(spaced, **fields)) > 2 * len(PAIRS[0])


def test_text_is_no_constraint(client) -> None:
    assert content(client, response_format={"type": "text"}) == "Paris."


@pytest.mark.parametrize(
    ("extra", "fits"),
    [
        ({"guided_choice": ["Rome", "Parma"]}, lambda text: text in ("Rome", "Parma")),
        ({"structured_outputs": {"choice": ["Oslo"]}}, lambda text: text == "Oslo"),
        ({"guided_regex": "[A-F]{3}-\\d{2}"}, lambda text: text[3] == "-" and len(text) == 6),
        ({"structured_outputs": {"regex": "x{4}"}}, lambda text: text == "xxxx"),
        ({"guided_json": {"const": [1, None]}}, lambda text: json.loads(text) == [1, None]),
        ({"guided_json": '{"type": "boolean"}'}, lambda text: text in ("true", "false")),
        ({"structured_outputs": {"json": {"enum": [7]}}}, lambda text: text == "7"),
        ({"structured_outputs": {"json_object": False}}, lambda text: text == "Paris."),
    ],
)
def test_forms_of_vllm(client, extra, fits) -> None:
    assert fits(content(client, extra_body=extra))


@pytest.mark.parametrize("text", [" yes", "\n", "<think>x", "</think>y", "x \n"])
@pytest.mark.parametrize("thinking", [{}, THINKING])
def test_a_choice_keeps_each_of_its_characters(client, text, thinking) -> None:
    extra = {"guided_choice": [text], **thinking}
    assert content(client, logit_bias={str(THINK_END): 50}, extra_body=extra) == text


def test_completions_follow_them_too(client) -> None:
    answer = client.completions.create(
        model=MODEL,
        prompt=[QUESTION, "The capital of Italy is"],
        extra_body={"guided_choice": [" Paris.", " Rome."]},
    )
    assert [one.text for one in answer.choices] == [" Paris.", " Rome."]
    assert {one.finish_reason for one in answer.choices} == {"stop"}


def test_a_required_call(client) -> None:
    answer = chat(client, tools=[FORECAST], tool_choice="required", parallel_tool_calls=False)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    parameters = FORECAST["function"]["parameters"]
    jsonschema.validate(json.loads(call.function.arguments), parameters)


def test_required_calls_are_all_that_comes(client) -> None:
    fields = {"tools": [WEATHER, FORECAST], "tool_choice": "required", "max_tokens": 40}
    message = chat(client, **fields, seed=1, temperature=1.0).choices[0].message
    assert message.content is None
    assert {call.function.name for call in message.tool_calls} <= {"weather", "forecast"}


def test_a_named_call(client) -> None:
    named = {"type": "function", "function": {"name": "forecast"}}
    for seed in range(3):
        fields = {"tools": [WEATHER, FORECAST], "tool_choice": named, "temperature": 1.0}
        choice = chat(client, seed=seed, **fields).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert [call.function.name for call in choice.message.tool_calls] == ["forecast"]
        arguments = json.loads(choice.message.tool_calls[0].function.arguments)
        jsonschema.validate(arguments, FORECAST["function"]["parameters"])


def test_strict_tools_are_held_to_their_schemas(client) -> None:
    strict = {**FORECAST, "function": {**FORECAST["function"], "strict": True}}
    assert content(client, tools=[strict]).startswith("Paris")
    bias = {str(TOOL_CALL): 100}
    fields = {"tools": [strict], "parallel_tool_calls": False, "logit_bias": bias}
    choice = chat(client, temperature=1.0, seed=1, **fields).choices[0]
    assert choice.finish_reason == "tool_calls"
    arguments = json.loads(choice.message.tool_calls[0].function.arguments)
    jsonschema.validate(arguments, FORECAST["function"]["parameters"])


def test_a_strict_tool_of_pydantic(client) -> None:
    tool = openai.pydantic_function_tool(Paint, name="paint")
    fields = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    bias = {str(VALUE_END): 15}
    for seed in range(6):
        choice = chat(client, seed=seed, temperature=1.3, logit_bias=bias, **fields).choices[0]
        [call] = choice.message.tool_calls
        Paint.model_validate_json(call.function.arguments)


def test_json_or_calls(client) -> None:
    fields = {"tools": [FORECAST], "response_format": form(CITY), "temperature": 1.0}
    fields["parallel_tool_calls"] = False
    num_calls = 0
    for seed in range(4):
        bias = {str(TOOL_CALL): 100 if seed % 2 else -100}
        choice = chat(client, seed=seed, logit_bias=bias, max_tokens=300, **fields).choices[0]
        if choice.finish_reason == "tool_calls":
            num_calls += 1
            assert choice.message.content is None
        else:
            jsonschema.validate(json.loads(choice.message.content), CITY)
    assert num_calls == 2


def thinking(client, end_bias, **fields):
    """Choices that begin in a thought which wants to end the turn, or to call."""
    biases = dict.fromkeys(map(str, (*ENDINGS, TOOL_CALL)), 100) | {str(THINK_END): end_bias}
    fields = {"temperature": 0, "max_tokens": 200, **fields}
    return chat(client, extra_body=THINKING, logit_bias=biases, **fields).choices


@pytest.mark.parametrize("drawing", [{}, {"temperature": 1, "seed": 3, "n": 6}])
@pytest.mark.parametrize("tool_choice", ["required", NAMED])
def test_a_required_call_comes_after_the_thought(client, drawing, tool_choice) -> None:
    fields = {"tools": [FORECAST], "tool_choice": tool_choice, "parallel_tool_calls": False}
    choices = thinking(client, 9, **fields, **drawing)
    for choice in choices:
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content is None
        [call] = choice.message.tool_calls
        arguments = json.loads(call.function.arguments)
        jsonschema.validate(arguments, FORECAST["function"]["parameters"])
    thoughts = [getattr(choice.message, "reasoning_content", "") for choice in choices]
    assert any(thoughts) == bool(drawing)


def test_a_required_call_streams_after_the_thought(client) -> None:
    fields = {"tools": [FORECAST], "tool_choice": "required", "parallel_tool_calls": False}
    fields |= {"temperature": 1, "seed": 3}
    [whole] = thinking(client, 9, **fields)
    biases = dict.fromkeys(map(str, (*ENDINGS, TOOL_CALL)), 100) | {str(THINK_END): 9}
    fields |= {"stream": True, "logit_bias": biases, "extra_body": THINKING}
    choices = [chunk.choices[0] for chunk in chat(client, max_tokens=200, **fields)]
    thoughts = [getattr(one.delta, "reasoning_content", None) or "" for one in choices]
    assert "".join(thoughts) == getattr(whole.message, "reasoning_content", "")
    pieces = [call.function for one in choices for call in one.delta.tool_calls or ()]
    [function] = [call.function for call in whole.message.tool_calls]
    assert "".join(piece.name or "" for piece in pieces) == function.name
    assert "".join(piece.arguments for piece in pieces) == function.arguments
    assert [one.finish_reason for one in choices if one.finish_reason] == ["tool_calls"]


@pytest.mark.parametrize("end_bias", [8, 100])
def test_a_schema_is_kept_after_the_thought(client, end_bias) -> None:
    [choice] = thinking(client, end_bias, response_format=form(CITY))
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content), CITY)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [FORECAST], "tool_choice": "required"},
        {"tools": [FORECAST], "tool_choice": NAMED},
        {"tools": [FORECAST], "response_format": form(CITY)},
        {"tools": [STRICT]},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_a_thought_ends_the_turn_by_its_length_alone(client, fields) -> None:
    [choice] = thinking(client, -100, max_tokens=30, **fields)
    assert choice.finish_reason == "length"
    assert choice.message.reasoning_content
    assert not choice.message.content
    assert not choice.message.tool_calls


def test_min_tokens_are_kept_as_far_as_the_grammar_goes(client) -> None:
    extra = {"guided_regex": "(ab )*", "min_tokens": 20}
    biases = dict.fromkeys(map(str, ENDINGS), 100)
    answer = chat(client, extra_body=extra, logit_bias=biases, max_tokens=60)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens >= 20
    short = chat(client, extra_body={**extra, "guided_regex": "(ab ){2}"}, max_tokens=60)
    assert short.choices[0].message.content == "ab ab "
    assert short.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (
            {"response_format": form({"items": {"type": "strin"}}, strict=True)},
            "response_format.json_schema.schema",
            "response_format.json_schema.schema#/items: Invalid type",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema.schema",
            "expected a JSON schema",
        ),
        ({"extra_body": {"guided_regex": "("}}, "guided_regex", "guided_regex: unclosed group"),
        ({"extra_body": {"guided_json": "{"}}, "guided_json", "invalid JSON"),
        ({"extra_body": {"guided_json": "[]"}}, "guided_json", "expected an object"),
        ({"extra_body": {"guided_choice": []}}, "guided_choice", "at least 1"),
        (
            {"extra_body": {"guided_regex": "a", "structured_outputs": {"regex": "b"}}},
            "guided_regex",
            "cannot be used together",
        ),
        (
            {"response_format": {"type": "json_object"}, "extra_body": {"ignore_eos": True}},
            "ignore_eos",
            "cannot be used with",
        ),
        ({"tool_choice": "required"}, "tool_choice", "at least one tool"),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "function", "function": {"name": "rain"}},
            },
            "tool_choice",
            "no tool is named 'rain'; the tools are: weather",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(client, fields, param, text) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **fields)
    assert caught.value.param == param
    assert text in caught.value.message


def test_many_at_once_and_some_that_leave(server, client) -> None:
    def ask(number):
        fields = {"response_format": form(CITY), "temperature": 1.0, "seed": number}
        if number % 3 == 0:
            with chat(client, stream=True, **fields) as stream:
                next(iter(stream))
            return None
        return json.loads(content(client, **fields))

    with ThreadPoolExecutor(12) as pool:
        documents = list(pool.map(ask, range(36)))
    for document in filter(None, documents):
        jsonschema.validate(document, CITY)
    assert documents.count(None) == 12
    server.wait_until_idle()


def test_a_hostile_schema_holds_nobody_else(client) -> None:
    """Of one that is not strict its type is left; a strict one is refused."""
    failing = {f"p{at}": {"type": "integer", "minimum": "é" * 60} for at in range(200)}
    hostile = form({"type": "object", "properties": failing})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(chat, client, response_format=hostile, max_tokens=1)
        assert content(client) == "Paris."
        assert content(client, response_format=form({"const": 2})) == "2"
        assert not asked.done()
        assert asked.result().choices[0].message.content.startswith("{")
    crossing = [{"type": "string", "pattern": f"(.*a){{{number}}}"} for number in range(5, 45)]
    with pytest.raises(openai.BadRequestError, match="the grammar takes more than 2 s"):
        content(client, response_format=form({"allOf": crossing}, strict=True))
    assert content(client, response_format=form({"const": 1})) == "1"
