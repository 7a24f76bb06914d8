"""Schemas as zod, pydantic and the AI SDK write them, strict and not, in all interfaces."""

import json

import pytest

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ASKED = [{"role": "user", "content": "Call it."}]
AHEAD = r"^(?!\.)(?!.*\.\.)([\w+.-]*)[\w+-]@([a-z][a-z-]*\.)+[a-z]{2,}$"
EMAIL = {"type": "string", "format": "email", "pattern": AHEAD}
RECORD = {
    "type": "object",
    "propertyNames": {"type": "string"},
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9},
}
SHAPES = {
    "a property": {"type": "object", "properties": {"mail": EMAIL}, "required": ["mail"]},
    "an item": {
        "type": "object",
        "properties": {"mails": {"type": "array", "items": EMAIL, "maxItems": 2}},
        "required": ["mails"],
    },
    "bounds": {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 3}},
        "required": ["n"],
    },
    "a reference": {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}},
}


def tool_fields(path, schema, strict):
    """Return a request whose answer must be a call of a tool with this schema."""
    said = {} if strict is None else {"strict": strict}
    if path == MESSAGES:
        tool = {"name": "f", "input_schema": schema, **said}
        choice, asked = {"type": "any"}, {"messages": ASKED, "max_tokens": 24}
    elif path == RESPONSES:
        tool = {"type": "function", "name": "f", "parameters": schema, **said}
        choice, asked = "required", {"input": ASKED, "max_output_tokens": 24}
    else:
        tool = {"type": "function", "function": {"name": "f", "parameters": schema, **said}}
        choice, asked = "required", {"messages": ASKED, "max_tokens": 24}
    return {**asked, "tools": [tool], "tool_choice": choice}


def format_fields(path, schema, strict):
    said = {} if strict is None else {"strict": strict}
    if path == RESPONSES:
        form = {"type": "json_schema", "name": "x", "schema": schema, **said}
        return {"input": ASKED, "max_output_tokens": 24, "text": {"format": form}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **said}}
    asked = {"prompt": "x"} if path == "/v1/completions" else {"messages": ASKED}
    return {**asked, "max_tokens": 24, "response_format": form}


@pytest.mark.parametrize("strict", [None, False])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_a_tool_that_is_not_strict_is_taken(server, path, name, strict) -> None:
    wrapped = {"type": "object", "properties": {"in": SHAPES[name]}, "required": ["in"]}
    for schema in (SHAPES[name], wrapped):
        answer = server.http.post(path, json=tool_fields(path, schema, strict))
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("strict", [None, False])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("path", ["/v1/completions", CHAT, RESPONSES])
def test_a_form_that_is_not_strict_is_taken(server, path, name, strict) -> None:
    answer = server.http.post(path, json=format_fields(path, SHAPES[name], strict))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_a_strict_tool_is_refused_with_its_place(server, path) -> None:
    answer = server.http.post(path, json=tool_fields(path, SHAPES["an item"], True))
    assert answer.status_code == 400
    assert "tools[0].function.parameters#/properties/mails" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/completions", CHAT, RESPONSES])
def test_a_strict_form_is_refused_with_its_place(server, path) -> None:
    answer = server.http.post(path, json=format_fields(path, SHAPES["an item"], True))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert f"{error['param']}#/properties/mails/items: look-around" in error["message"]


@pytest.mark.parametrize("path", ["/v1/completions", CHAT, RESPONSES])
def test_records_of_zod_are_taken_by_what_is_strict(server, path) -> None:
    wrapped = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"counts": RECORD},
        "required": ["counts"],
        "additionalProperties": False,
    }
    answer = server.http.post(path, json=format_fields(path, wrapped, True))
    assert answer.status_code == 200, answer.text
    if path != "/v1/completions":
        answer = server.http.post(path, json=tool_fields(path, wrapped, True))
        assert answer.status_code == 200, answer.text


def test_messages_take_records_of_zod(server) -> None:
    fields = tool_fields(MESSAGES, RECORD, True)
    assert server.http.post(MESSAGES, json=fields).status_code == 200
    form = {"messages": ASKED, "max_tokens": 24, "output_format": None}
    form["output_config"] = {"format": {"type": "json_schema", "schema": RECORD}}
    assert server.http.post(MESSAGES, json=form).status_code == 200


def test_a_relaxed_grammar_is_known_the_next_time(server) -> None:
    schema = {**SHAPES["an item"], "title": "a schema of its own"}
    schema = {**schema, "properties": {**schema["properties"], "n": {"const": 1}}}
    for _ in range(3):
        fields = format_fields(CHAT, {**schema, "required": ["n", "mails"]}, False)
        answer = server.http.post(CHAT, json={**fields, "max_tokens": 60})
        assert answer.status_code == 200, answer.text
        text = answer.json()["choices"][0]["message"]["content"]
        if answer.json()["choices"][0]["finish_reason"] == "stop":
            assert json.loads(text)["n"] == 1
        assert text.startswith('{"mails"')


GRAMMARS = [
    {"guided_grammar": 'start: "Rome" | "Oslo"'},
    {"guided_grammar": 'root ::= "Rome" | "Oslo"'},
    {"structured_outputs": {"grammar": 'start: city\ncity: "Rome" | "Oslo"'}},
]


@pytest.mark.parametrize("fields", GRAMMARS)
def test_answers_follow_a_grammar_of_the_client(server, fields) -> None:
    for path, asked in ((CHAT, {"messages": ASKED}), ("/v1/completions", {"prompt": "x"})):
        for temperature in (0, 2):
            answer = server.http.post(path, json={**asked, **fields, "temperature": temperature})
            assert answer.status_code == 200, answer.text
            [choice] = answer.json()["choices"]
            said = choice["text"] if "text" in choice else choice["message"]["content"]
            assert said in ("Rome", "Oslo")
            assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_grammar": 'start: "a" b'}, "guided_grammar"),
        ({"structured_outputs": {"grammar": 'root ::= "a" ('}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"grammar": "start: /a{1000000}/"}}, "structured_outputs.grammar"),
    ],
)
def test_a_wrong_grammar_names_its_field_and_place(server, fields, param) -> None:
    answer = server.http.post(CHAT, json={"messages": ASKED, **fields})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_grammar")
    assert error["message"].startswith(f"{param}: ")


def test_one_constraint_at_a_time(server) -> None:
    fields = {"guided_grammar": 'start: "a"', "guided_regex": "a"}
    answer = server.http.post(CHAT, json={"messages": ASKED, **fields})
    assert answer.status_code == 400
    assert "cannot be used together" in answer.json()["error"]["message"]
