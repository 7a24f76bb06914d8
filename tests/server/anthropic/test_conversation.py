"""What the checkpoint's template gets of Anthropic's messages."""

import pytest

from glm_engine.server.anthropic.conversation import template_messages, template_tools
from glm_engine.server.anthropic.fields import CountRequest
from glm_engine.server.errors import ApiError


def fields_of(*messages, **more):
    return CountRequest.model_validate({"model": "m", "messages": list(messages), **more})


def call(number):
    return {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {"n": number}}


def result(number, content):
    return {"type": "tool_result", "tool_use_id": f"t{number}", "content": content}


def test_system_texts_and_roles():
    fields = fields_of(
        {"role": "user", "content": "a"},
        {"role": "system", "content": "c"},
        {"role": "assistant", "content": [{"type": "text", "text": "d"}]},
        system=[{"type": "text", "text": "x"}, {"type": "text", "text": "y"}],
    )
    assert template_messages(fields) == [
        {"role": "system", "content": "xy"},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]


def test_results_stand_in_the_order_of_their_calls():
    fields = fields_of(
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "Two."},
                call(1),
                call(2),
            ],
        },
        {
            "role": "user",
            "content": [
                result(2, [{"type": "text", "text": "b"}]),
                result(1, "a"),
                {"type": "text", "text": "now"},
            ],
        },
    )
    _, assistant, *rest = template_messages(fields)
    assert assistant["reasoning_content"] == "hm"
    assert assistant["content"] == "Two."
    assert [one["function"] for one in assistant["tool_calls"]] == [
        {"name": "f", "arguments": {"n": 1}},
        {"name": "f", "arguments": {"n": 2}},
    ]
    assert rest == [
        {"role": "tool", "tool_call_id": "t1", "content": "a"},
        {"role": "tool", "tool_call_id": "t2", "content": "b"},
        {"role": "user", "content": "now"},
    ]


def test_result_without_its_call():
    with pytest.raises(ApiError, match="'t1' is no call of the turn before"):
        template_messages(fields_of({"role": "user", "content": [result(1, "a")]}))


def test_tools_in_the_form_that_templates_and_parser_take():
    schema = {"type": "object", "properties": {}}
    fields = fields_of(
        {"role": "user", "content": "a"},
        tools=[
            {"name": "f", "input_schema": schema, "cache_control": {"type": "ephemeral"}},
            {"name": "g", "input_schema": schema, "description": "d", "type": "custom"},
        ],
    )
    assert template_tools(fields) == [
        {"type": "function", "function": {"name": "f", "parameters": schema}},
        {"type": "function", "function": {"name": "g", "description": "d", "parameters": schema}},
    ]
