"""What the fields of requests take as harmless, as a number, or as nothing."""

import inspect

import anthropic
import openai
import pydantic
import pytest
from openai.resources import responses

from glm_engine.server.anthropic.message_fields import MessagesRequest
from glm_engine.server.fields import unknown_fields
from glm_engine.server.openai.chat_completions import ChatRequest
from glm_engine.server.openai.chat_messages import (
    template_messages,
    template_tools,
    template_variables,
)
from glm_engine.server.openai.completions import CompletionRequest
from glm_engine.server.openai.responses.response_fields import ResponsesRequest
from tests.server.openai.test_chat import ASKED, WEATHER, chat

FORECAST = {**WEATHER, "function": {**WEATHER["function"], "name": "forecast"}}


def request_of(messages=ASKED, **fields):
    return ChatRequest.model_validate({"messages": messages, **fields})


def named(*names):
    return [{"type": "function", "function": {"name": name}} for name in names]


def allowed(mode, *names):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named(*names)}}


def test_nulls_of_unknown_fields_ask_for_nothing(monkeypatch) -> None:
    monkeypatch.setattr(unknown_fields, "are_refused", True)
    fields = request_of(colour=None, stream_options={"include_usage": True, "colour": None})
    assert fields.stream_options.include_usage is True
    with pytest.raises(pydantic.ValidationError, match="not known"):
        request_of(colour=False)
    with pytest.raises(pydantic.ValidationError, match=r"stream_options\n.*not known"):
        request_of(stream_options={"colour": 0})


def test_whole_numbers_however_they_are_written() -> None:
    fields = request_of(top_k=40.0, max_tokens=7.0, n=2, seed=-(2.0**53), top_logprobs=0.0)
    assert (fields.top_k, fields.max_tokens, fields.n, fields.seed) == (40, 7, 2, -(2**53))
    assert type(fields.top_k) is int
    for wrong in (40.5, True, "40", 1e300, -2.0):
        with pytest.raises(pydantic.ValidationError, match="top_k"):
            request_of(top_k=wrong)


def test_keys_of_biases_are_token_ids() -> None:
    assert request_of(logit_bias={"0000000007": 1}).logit_bias == {7: 1}
    for wrong in ("x", "", "-1", "1.0", "\u0661", "0" * 5000 + "1"):
        with pytest.raises(pydantic.ValidationError, match=r"logit_bias\n.*token ids as keys"):
            request_of(logit_bias={wrong: 1})


def test_marks_of_caches_do_not_reach_the_template() -> None:
    mark = {"type": "ephemeral"}
    part = {"type": "text", "text": "Hi", "cache_control": mark}
    tool = {**WEATHER, "cache_control": mark}
    tool["function"] = {**WEATHER["function"], "cache_control": mark}
    fields = request_of([{"role": "user", "content": [part]}], tools=[tool])
    assert template_tools(fields.tools) == [WEATHER]
    (message,) = template_messages(fields.messages)
    assert message == {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    "said",
    [
        {"content": [{"type": "refusal", "refusal": "No."}]},
        {"content": None, "refusal": "No."},
        {"content": [{"type": "text", "text": "No."}], "refusal": None},
    ],
)
def test_refusals_are_what_the_assistant_said(said) -> None:
    (message,) = template_messages(request_of([{"role": "assistant", **said}]).messages)
    content = message["content"]
    assert content in ("No.", [{"type": "text", "text": "No."}])
    assert set(message) == {"role", "content"}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_come_back_under_both_names(name) -> None:
    said = {"role": "assistant", "content": "Paris.", name: "easy"}
    (message,) = template_messages(request_of([said]).messages)
    assert message == {"role": "assistant", "content": "Paris.", "reasoning_content": "easy"}


def test_hints_reach_the_template() -> None:
    fields = request_of(verbosity="low", reasoning_effort="none")
    expected = {"verbosity": "low", "reasoning_effort": "none", "enable_thinking": False}
    assert template_variables(fields) == expected
    fields = request_of(verbosity="low", chat_template_kwargs={"verbosity": "high"})
    assert template_variables(fields) == {"verbosity": "high"}


def test_budgets_of_thoughts_are_taken() -> None:
    for kind, thinks in (("enabled", True), ("adaptive", True), ("disabled", False)):
        fields = request_of(thinking={"type": kind, "budget_tokens": 1024})
        assert template_variables(fields) == {"enable_thinking": thinks}


def test_a_call_in_the_old_form_is_a_call() -> None:
    called = {"name": "weather", "arguments": '{"city": "Paris"}'}
    messages = [{"role": "assistant", "content": None, "function_call": called}]
    (message,) = template_messages(request_of(messages).messages)
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": {"city": "Paris"}}


def fields_of_client(method):
    beside = {"self", "timeout", "extra_headers", "extra_query", "extra_body"}
    return set(inspect.signature(method).parameters) - beside


@pytest.mark.parametrize(
    ("method", "model"),
    [
        (openai.resources.chat.Completions.create, ChatRequest),
        (openai.resources.Completions.create, CompletionRequest),
        (responses.Responses.create, ResponsesRequest),
        (anthropic.resources.Messages.create, MessagesRequest),
    ],
)
def test_every_field_of_the_official_clients_is_known(method, model) -> None:
    assert fields_of_client(method) <= set(model.model_fields)


def test_no_top_logprobs_without_logprobs(client) -> None:
    assert chat(client, logprobs=False, top_logprobs=0).choices[0].logprobs is None


def test_allowed_tools_are_those_the_model_is_told_of(client) -> None:
    fields = {"tools": [WEATHER, FORECAST], "max_tokens": 3}
    one = chat(client, **{**fields, "tools": [FORECAST]})
    chosen = chat(client, **fields, tool_choice=allowed("auto", "forecast"))
    assert chosen.usage.prompt_tokens == one.usage.prompt_tokens
    short = {"type": "object", "properties": {"city": {"enum": ["Paris"]}}}
    asked = {**WEATHER, "function": {**WEATHER["function"], "parameters": short}}
    required = chat(
        client,
        tools=[asked, FORECAST],
        max_tokens=60,
        tool_choice=allowed("required", "weather"),
        parallel_tool_calls=False,
    )
    assert {call.function.name for call in required.choices[0].message.tool_calls} == {"weather"}


def test_allowed_tools_that_are_none(client) -> None:
    with pytest.raises(openai.BadRequestError, match="no tool is named 'rain'") as caught:
        chat(client, tools=[WEATHER], tool_choice=allowed("auto", "weather", "rain"))
    assert caught.value.param == "tool_choice.allowed_tools.tools"
