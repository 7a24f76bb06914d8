"""What the checkpoint's template gets of Anthropic's messages."""

import pytest

from glm_engine.server.anthropic.message_fields import CountRequest, MessagesRequest
from glm_engine.server.anthropic.messages import continues_turn, template_messages, template_tools
from glm_engine.server.http.api_errors import ApiError


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


@pytest.mark.parametrize("given", [None, "", {}])
def test_a_call_without_input(given):
    turn = {"role": "assistant", "content": [{**call(1), "input": given}]}
    [_, message] = template_messages(fields_of({"role": "user", "content": "go"}, turn))
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": {}}


@pytest.mark.parametrize("given", ["null", [], "x", 0, False])
def test_an_input_that_is_no_object(given):
    turn = {"role": "assistant", "content": [{**call(1), "input": given}]}
    with pytest.raises(ValueError, match="input"):
        fields_of(turn)


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
    with pytest.raises(ApiError, match="'t1' does not match any tool_use block"):
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


def content_of(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def test_neighbours_of_one_role_are_one_turn():
    fields = fields_of(
        {"role": "user", "content": "go"},
        content_of({"type": "thinking", "thinking": "hm", "signature": None}, call(1)),
        content_of({"type": "redacted_thinking", "data": "x"}, call(2)),
        {"role": "user", "content": [result(2, "b")]},
        {"role": "user", "content": [result(1, "a"), {"type": "text", "text": "now"}]},
        {"role": "user", "content": "then"},
    )
    _, assistant, *rest = template_messages(fields)
    assert [one["id"] for one in assistant["tool_calls"]] == ["t1", "t2"]
    assert assistant["reasoning_content"] == "hm"
    assert rest == [
        {"role": "tool", "tool_call_id": "t1", "content": "a"},
        {"role": "tool", "tool_call_id": "t2", "content": "b"},
        {"role": "user", "content": "now"},
        {"role": "user", "content": "then"},
    ]


def test_a_result_keeps_its_call_across_a_system_message():
    fields = fields_of(
        content_of(call(1)),
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [result(1, "a")]},
    )
    assert [one["role"] for one in template_messages(fields)] == ["assistant", "system", "tool"]


def test_calls_of_an_earlier_turn_are_not_answered_again():
    answered = {"role": "user", "content": [result(1, "a")]}
    with pytest.raises(ApiError, match="'t1' does not match any tool_use block") as caught:
        template_messages(fields_of(content_of(call(1)), answered, content_of(call(2)), answered))
    assert caught.value.param == "messages.3.content"


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
LEFT_OUT = "[image omitted: this model reads text only]"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"content": None}, ""),
        ({}, ""),
        ({"content": "a", "is_error": None}, "a"),
        ({"content": "a", "is_error": True}, "a"),
        ({"content": [], "is_error": True}, "The tool failed."),
        ({"content": [{"type": "text", "text": "See: "}, IMAGE]}, f"See: {LEFT_OUT}"),
    ],
)
def test_forms_of_results(answer, text):
    made = {"type": "tool_result", "tool_use_id": "t1", **answer}
    fields = fields_of(content_of(call(1)), {"role": "user", "content": [made]})
    assert template_messages(fields)[-1]["content"] == text


def test_a_last_turn_of_the_assistant_is_continued_as_a_whole():
    begun = content_of({"type": "text", "text": "The capital"})
    said = content_of({"type": "text", "text": " is"})
    assert continues_turn(fields_of(begun, said))
    assert template_messages(fields_of(begun, said))[-1]["content"] == "The capital is"
    with pytest.raises(ApiError, match=r"messages\.1: expected only text blocks"):
        continues_turn(fields_of(content_of(call(1)), said))


@pytest.mark.parametrize("break_", ["", "\n"])
def test_what_claude_code_notes_for_its_service_is_no_part_of_the_prompt(break_):
    note = f"x-anthropic-billing-header: cc_version=2.1.0; cch=36ee5;{break_}"
    texts = [note, "You are brief.", "\nx-anthropic-billing-header: kept"]
    fields = fields_of(
        {"role": "user", "content": "a"}, system=[{"type": "text", "text": one} for one in texts]
    )
    system, _ = template_messages(fields)
    assert system["content"] == "You are brief.\nx-anthropic-billing-header: kept"


def test_whole_numbers_however_they_are_written():
    message = {"role": "user", "content": "a"}
    thinking = {"type": "enabled", "budget_tokens": 1024.0}
    fields = MessagesRequest.model_validate(
        {"model": "m", "messages": [message], "max_tokens": 9.0, "top_k": 3.0, "thinking": thinking}
    )
    assert (fields.max_tokens, fields.top_k, fields.thinking.budget_tokens) == (9, 3, 1024)
