"""The official client's helpers: streamed calls, parsed answers, asynchronous use."""

import asyncio
import json
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest

from tests.server.openai.test_chat import ASKED, chat
from tests.server.openai.test_constraints import FORECAST, THINK_END
from tests.server.serving import MODEL, QUESTION

REQUIRED = {"tool_choice": "required", "parallel_tool_calls": False}
PARAMETERS = FORECAST["function"]["parameters"]


class Forecast(pydantic.BaseModel):
    """The weather of the coming days."""

    unit: Literal["celsius", "kelvin"]
    days: int = pydantic.Field(ge=1, le=14)


class Capital(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=16)
    rank: int = pydantic.Field(ge=1, le=9)


TOOL = openai.pydantic_function_tool(Forecast)


def test_a_streamed_call(client) -> None:
    whole = chat(client, tools=[FORECAST], **REQUIRED).choices[0].message
    chunks = list(chat(client, tools=[FORECAST], stream=True, **REQUIRED))
    deltas = [one.choices[0].delta for one in chunks]
    assert [delta.role for delta in deltas if delta.role] == ["assistant"]
    assert not any(delta.content for delta in deltas)
    first, *rest = [call for delta in deltas for call in delta.tool_calls or ()]
    assert (first.index, first.type, first.function.name) == (0, "function", "forecast")
    assert first.id.startswith("call_")
    assert {(call.index, call.id, call.function.name) for call in rest} == {(0, None, None)}
    arguments = "".join(call.function.arguments for call in [first, *rest])
    assert arguments == whole.tool_calls[0].function.arguments
    jsonschema.validate(json.loads(arguments), PARAMETERS)
    reasons = [one.choices[0].finish_reason for one in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["tool_calls"]


def test_the_streaming_helper_with_tools(client) -> None:
    fields = {"model": MODEL, "messages": ASKED, "tools": [TOOL], **REQUIRED}
    with client.chat.completions.stream(**fields) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    pieces = [one for one in events if one.type == "tool_calls.function.arguments.delta"]
    (done,) = [one for one in events if one.type == "tool_calls.function.arguments.done"]
    assert "".join(one.arguments_delta for one in pieces) == done.arguments
    assert isinstance(done.parsed_arguments, Forecast)
    (call,) = final.choices[0].message.tool_calls
    assert call.function.parsed_arguments == done.parsed_arguments
    assert final.choices[0].finish_reason == "tool_calls"


def test_the_streaming_helper_with_a_model(client) -> None:
    fields = {"model": MODEL, "messages": ASKED, "response_format": Capital}
    with client.chat.completions.stream(**fields) as stream:
        kinds = {one.type for one in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert isinstance(final.choices[0].message.parsed, Capital)


def test_the_streaming_helper_with_logprobs(client) -> None:
    fields = {"model": MODEL, "messages": ASKED, "logprobs": True, "top_logprobs": 1}
    with client.chat.completions.stream(**fields) as stream:
        (done,) = [one for one in stream if one.type == "logprobs.content.done"]
    assert "".join(row.token for row in done.content) == "Paris."


def test_calls_are_parsed(client) -> None:
    fields = {"model": MODEL, "messages": ASKED, "tools": [TOOL], **REQUIRED}
    (call,) = client.chat.completions.parse(**fields).choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Forecast)


def test_a_required_call_after_a_thought(client) -> None:
    fields = {"tools": [FORECAST], **REQUIRED, "logit_bias": {str(THINK_END): 100}}
    fields["extra_body"] = {"thinking": {"type": "enabled"}}
    choice = chat(client, **fields).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    jsonschema.validate(json.loads(choice.message.tool_calls[0].function.arguments), PARAMETERS)


def test_a_call_and_its_result_go_back(client) -> None:
    message = chat(client, tools=[FORECAST], **REQUIRED).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    messages = [*ASKED, message, result]
    answer = chat(client, messages, tools=[FORECAST], max_tokens=4)
    assert answer.usage.prompt_tokens > chat(client, ASKED, max_tokens=1).usage.prompt_tokens


def test_a_parsed_answer_that_is_cut(client) -> None:
    fields = {"model": MODEL, "messages": ASKED, "response_format": Capital, "max_tokens": 2}
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        client.chat.completions.parse(**fields)
    assert caught.value.completion.choices[0].finish_reason == "length"


def test_raw_answers(client) -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=ASKED)
    assert len(raw.request_id) == 32
    assert raw.parse().choices[0].message.content == "Paris."
    streamed = client.completions.with_streaming_response
    with streamed.create(model=MODEL, prompt=QUESTION, stream=True) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


def test_the_asynchronous_client(server) -> None:
    async def text_of_stream(client):
        stream = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True)
        return "".join([one.choices[0].delta.content or "" async for one in stream])

    async def text_of_helper(client):
        async with client.chat.completions.stream(model=MODEL, messages=ASKED) as stream:
            return (await stream.get_final_completion()).choices[0].message.content

    async def text_of_completion(client):
        answer = await client.completions.create(model=MODEL, prompt=QUESTION)
        return answer.choices[0].text.strip()

    async def arguments_of_call(client):
        fields = {"model": MODEL, "messages": ASKED, "tools": [TOOL], **REQUIRED}
        answer = await client.chat.completions.parse(**fields)
        return answer.choices[0].message.tool_calls[0].function.parsed_arguments

    async def run():
        options = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
        async with openai.AsyncOpenAI(**options) as client:
            askers = (text_of_stream, text_of_helper, text_of_completion, arguments_of_call)
            return await asyncio.gather(*[ask(client) for ask in askers for _ in range(4)])

    *texts, _, _, _, forecast = asyncio.run(run())
    assert texts == ["Paris."] * 12
    assert isinstance(forecast, Forecast)


def test_an_asynchronous_client_that_stops_reading(server) -> None:
    async def run():
        extra = {"ignore_eos": True}
        fields = {"model": MODEL, "prompt": QUESTION, "stream": True, "max_tokens": 4000}
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            stream = await client.completions.create(**fields, extra_body=extra)
            assert (await anext(aiter(stream))).choices[0].text
            await stream.close()

    asyncio.run(run())
    server.wait_until_idle()
