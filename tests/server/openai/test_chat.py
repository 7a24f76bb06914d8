"""/v1/chat/completions through the official client."""

import openai
import pytest

from glm_engine.server.openai.chat_messages import Message, template_messages
from tests.server.serving import MODEL

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        },
    },
}


def chat(client, messages=ASKED, **fields):
    return client.chat.completions.create(model=MODEL, messages=messages, **fields)


def test_whole_answer(client) -> None:
    answer = chat(client)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "Paris."
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_streamed_answer(client) -> None:
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].object == "chat.completion.chunk"
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [one.choices[0].delta.content or "" for one in chunks[:-1]]
    assert "".join(texts) == "Paris."
    assert [one.choices[0].finish_reason for one in chunks[:-1]][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 5
    assert chunks[-1].choices == []


def test_conversation(client) -> None:
    messages = [
        {"role": "developer", "content": "Answer in one word."},
        *ASKED,
        {"role": "assistant", "content": "Paris.", "reasoning_content": "easy"},
        {"role": "user", "content": [{"type": "text", "text": "What is the capital of Japan?"}]},
    ]
    assert chat(client, messages).choices[0].message.content == "Tokyo."


@pytest.mark.parametrize(
    ("extra", "is_open"),
    [
        ({}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"thinking": {"type": "enabled"}}, True),
        (
            {"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}},
            False,
        ),
        ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}, False),
    ],
)
def test_thinking_on_and_off(client, extra, is_open) -> None:
    message = chat(client, max_tokens=4, extra_body=extra).choices[0].message
    reasoning = getattr(message, "reasoning_content", "")
    assert bool(reasoning) == is_open
    chunks = list(chat(client, max_tokens=4, stream=True, extra_body=extra))
    pieces = [getattr(one.choices[0].delta, "reasoning_content", None) or "" for one in chunks]
    assert "".join(pieces) == reasoning
    if is_open:
        extra = {**extra, "include_reasoning": False}
        hidden = chat(client, max_tokens=4, extra_body=extra).choices[0].message
        assert not hasattr(hidden, "reasoning_content")


def test_choices(client) -> None:
    answer = chat(client, n=3)
    assert [one.index for one in answer.choices] == [0, 1, 2]
    assert {one.message.content for one in answer.choices} == {"Paris."}
    assert answer.usage.completion_tokens == 15


def test_logprobs(client) -> None:
    rows = chat(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(row.token for row in rows) == "Paris."
    assert b"".join(bytes(row.bytes) for row in rows) == b"Paris."
    for row in rows:
        assert row.top_logprobs[0].token == row.token
        assert row.top_logprobs[0].logprob == row.logprob > row.top_logprobs[1].logprob
    chunks = list(chat(client, logprobs=True, top_logprobs=2, stream=True))
    streamed = [
        row for one in chunks if one.choices[0].logprobs for row in one.choices[0].logprobs.content
    ]
    assert streamed == rows
    alone = chat(client, logprobs=True).choices[0].logprobs.content
    assert [row.top_logprobs for row in alone] == [[]] * len(rows)


def test_max_completion_tokens(client) -> None:
    answer = chat(client, max_completion_tokens=2, max_tokens=50)
    assert answer.usage.completion_tokens == 2
    assert answer.choices[0].finish_reason == "length"


def test_stop(client) -> None:
    assert chat(client, stop="ris").choices[0].message.content == "Pa"


def test_streaming_helper_of_the_client(client) -> None:
    with client.chat.completions.stream(model=MODEL, messages=ASKED) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Paris."


def test_tools_and_their_results_are_taken(client) -> None:
    messages = [
        *ASKED,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    answer = chat(client, messages, tools=[WEATHER], max_tokens=3)
    assert answer.usage.prompt_tokens > 60
    bare = chat(client, messages, tools=[WEATHER], tool_choice="none", max_tokens=3)
    assert bare.usage.prompt_tokens < answer.usage.prompt_tokens


def results_of(*ids):
    """What a template gets of two calls and of results with these ids."""
    function = {"name": "weather", "arguments": "{}"}
    calls = [{"id": name, "type": "function", "function": function} for name in ("a", "b")]
    results = [
        {"role": "tool", "tool_call_id": name, "content": f"result of {name}"} for name in ids
    ]
    messages = [*ASKED, {"role": "assistant", "tool_calls": calls}, *results]
    return [one["content"] for one in template_messages([Message(**one) for one in messages])]


def test_results_come_in_the_order_of_their_calls() -> None:
    in_order = ["result of a", "result of b"]
    assert results_of("a", "b")[-2:] == results_of("b", "a")[-2:] == in_order
    assert results_of("b", "other")[-2:] == ["result of b", "result of other"]
    assert results_of("b", None)[-2:] == ["result of b", "result of None"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools.0.function"),
        ({"verbosity": "loud"}, "verbosity"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"extra_body": {"chat_template_kwargs": {"messages": []}}}, "chat_template_kwargs"),
        ({"extra_body": {"continue_final_message": True}}, "continue_final_message"),
    ],
)
def test_wrong_fields_are_named(client, fields, param) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **{"messages": ASKED, **fields})
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def called(arguments):
    function = {"name": "weather", "arguments": arguments}
    call = {"id": "1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "1", "content": "sunny"}
    return [*ASKED, {"role": "assistant", "content": "", "tool_calls": [call]}, result]


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ("", "{}"),
        ("{", "{}"),
        ('{"', "{}"),
        ('{"city": "Pa', "{}"),
        ('{"city": "Paris", "da', '{"city": "Paris"}'),
        ('{"city": "Paris", "days": [1, {"a": "x', '{"city": "Paris", "days": [1, {}]}'),
        ("{'city': 'Paris'}", "{}"),
        ("Paris", "{}"),
        ('{"city": NaN}', "{}"),
    ],
)
def test_arguments_of_a_call_that_was_cut_come_back(client, cut, whole) -> None:
    fields = {"max_tokens": 3, "temperature": 0}
    answers = [chat(client, called(text), **fields) for text in (cut, whole)]
    assert answers[0].usage.prompt_tokens == answers[1].usage.prompt_tokens
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content


@pytest.mark.parametrize("arguments", ["null", " null\n", "", " ", "{}", None])
def test_a_call_without_arguments_comes_back(client, arguments) -> None:
    for messages in (called, called_in_the_older_form):
        prompts = [chat(client, messages(one)).usage.prompt_tokens for one in (arguments, "{}")]
        assert prompts[0] == prompts[1]


def called_in_the_older_form(arguments):
    function = {"name": "weather", "arguments": arguments}
    return [*ASKED, {"role": "assistant", "content": None, "function_call": function}]


@pytest.mark.parametrize("arguments", ["[1]", "[1", '"Paris"', "3", "false"])
def test_arguments_that_are_no_object_are_named(client, arguments) -> None:
    with pytest.raises(openai.BadRequestError, match="expected a JSON object") as caught:
        chat(client, called(arguments))
    assert caught.value.param == "messages.1.tool_calls.0.function.arguments"
