"""The official client's helpers: streams, parsed answers and calls, asynchronous use."""

import asyncio
import contextlib

import openai
import pydantic
import pytest

from tests.endless import NUM_TOKENS
from tests.server.openai.responses.test_responses import ASKED, OTHER, QUESTION, TOOL
from tests.server.openai.test_client import Capital, Forecast
from tests.server.openai.test_constraints import THINK_END

ENDLESS = {"ignore_eos": True, "max_output_tokens": NUM_TOKENS}
REQUIRED = {"tool_choice": "required", "parallel_tool_calls": False}
CALLING = {**ASKED, **REQUIRED, "tools": [TOOL, OTHER]}


def test_a_stream(client):
    events = list(client.responses.create(**ASKED, stream=True))
    assert events[0].type == "response.created"
    assert events[0].response.status == "in_progress"
    assert events[-1].response.output_text == "Paris."
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_streaming_helper(client):
    with client.responses.stream(**ASKED) as stream:
        snapshots = [event.snapshot for event in stream if event.type.endswith("text.delta")]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == "Paris."


def test_the_streaming_helper_with_tools(client):
    with client.responses.stream(**CALLING) as stream:
        events = list(stream)
        final = stream.get_final_response()
    snapshots = [event.snapshot for event in events if event.type.endswith("arguments.delta")]
    [call] = final.output
    assert snapshots[-1] == call.arguments


def test_the_streaming_helper_with_a_model(client):
    with client.responses.stream(**ASKED, text_format=Capital) as stream:
        [done] = [event for event in stream if event.type == "response.output_text.done"]
        final = stream.get_final_response()
    assert isinstance(done.parsed, Capital)
    assert final.output_parsed == done.parsed


def test_a_parsed_answer(client):
    assert isinstance(client.responses.parse(**ASKED, text_format=Capital).output_parsed, Capital)


def test_a_parsed_answer_that_is_cut(client):
    with pytest.raises(pydantic.ValidationError):
        client.responses.parse(**ASKED, text_format=Capital, max_output_tokens=2)


def test_a_parsed_call(client):
    tools = [openai.pydantic_function_tool(Forecast)]
    answer = client.responses.parse(**ASKED, **REQUIRED, tools=tools)
    [call] = answer.output
    assert isinstance(call.parsed_arguments, Forecast)


def test_a_call_and_its_result_go_back(client):
    items = [{"role": "user", "content": QUESTION}]
    first = client.responses.create(**{**CALLING, "input": items})
    [call] = first.output
    items += first.output
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    fields = {**ASKED, "input": items, "tools": [TOOL, OTHER], "max_output_tokens": 4}
    second = client.responses.create(**fields)
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens


def test_a_thought_goes_back(client):
    extra = {"chat_template_kwargs": {"enable_thinking": True}, "max_output_tokens": 8}
    extra["logit_bias"] = {str(THINK_END): 5}
    first = client.responses.create(**ASKED, extra_body=extra)
    assert first.output[0].type == "reasoning"
    items = [{"role": "user", "content": QUESTION}, *first.output]
    items.append({"role": "user", "content": "What is the capital of Japan?"})
    assert client.responses.create(**{**ASKED, "input": items}).output_text == "Tokyo."


def test_raw_answers(client):
    raw = client.responses.with_raw_response.create(**ASKED)
    assert raw.headers["content-type"] == "application/json"
    assert raw.parse().id == f"resp_{raw.request_id}"
    with client.responses.with_streaming_response.create(**ASKED, stream=True) as answer:
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-2] == "event: response.completed"
    assert all(line.startswith(("event: ", "data: {")) for line in lines)


def test_the_asynchronous_client(server):
    async def whole(client):
        return (await client.responses.create(**ASKED)).output_text

    async def streamed(client):
        stream = await client.responses.create(**ASKED, stream=True)
        pieces = [event.delta async for event in stream if event.type.endswith("text.delta")]
        return "".join(pieces)

    async def helped(client):
        async with client.responses.stream(**ASKED) as stream:
            return (await stream.get_final_response()).output_text

    async def called(client):
        return (await client.responses.create(**CALLING)).output[0].type

    async def run():
        options = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0}
        async with openai.AsyncOpenAI(**options) as client:
            askers = (whole, streamed, helped, called)
            return await asyncio.gather(*[ask(client) for ask in askers for _ in range(3)])

    assert asyncio.run(run()) == ["Paris."] * 9 + ["function_call"] * 3


@pytest.mark.parametrize("reads", [0, 4])
def test_a_client_that_stops_reading(endless_server, reads):
    asked = {**ASKED, "stream": True, "extra_body": ENDLESS}
    with endless_server.openai() as client, client.responses.create(**asked) as stream:
        for _ in range(reads):
            assert next(iter(stream)).type
        endless_server.wait_for_gauges(live_requests=1)
    endless_server.wait_until_idle()


def events_until_deadline(client):
    """Return the events of a stream; one whose time was over before it began is asked again."""
    for seconds in (0.1, 1, 10, 100):
        fields = {**ASKED, **ENDLESS, "timeout_seconds": seconds, "stream": True}
        with contextlib.suppress(openai.APIStatusError):
            return list(client.responses.create(extra_body=fields, stream=True))
    raise AssertionError("no stream began")


def test_a_deadline_ends_a_stream(endless_server):
    with endless_server.openai() as client:
        events = events_until_deadline(client)
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2].code == "deadline_exceeded"


def test_an_asynchronous_client_that_leaves_a_whole_answer(endless_server):
    async def run():
        options = {"base_url": f"{endless_server.url}/v1", "api_key": "none", "max_retries": 0}
        async with openai.AsyncOpenAI(**options) as client:
            asked = asyncio.create_task(client.responses.create(**ASKED, extra_body=ENDLESS))
            await asyncio.to_thread(endless_server.wait_for_gauges, live_requests=1)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked

    asyncio.run(run())
    endless_server.wait_until_idle()
