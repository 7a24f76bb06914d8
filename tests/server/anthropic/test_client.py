"""The official client's helpers: streamed calls, parsed answers, asynchronous use."""

import asyncio
import json
from typing import Literal

import anthropic
import pydantic
import pytest

from tests.server.anthropic.test_messages import ASKED, COUNTRIES, QUESTION, TWO_TOOLS
from tests.server.serving import MODEL

ONE_CALL = {"type": "any", "disable_parallel_tool_use": True}
CALLING = {**ASKED, "max_tokens": 200, "tools": TWO_TOOLS, "tool_choice": ONE_CALL}


class Capital(pydantic.BaseModel):
    country: Literal["France", "Peru"]
    is_large: bool


def test_a_streamed_call(claude):
    whole = claude.messages.create(**CALLING).content[0]
    events = list(claude.messages.create(**CALLING, stream=True))
    kinds = [one.type for one in events]
    assert kinds[0] == "message_start"
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    (start,) = [one for one in events if one.type == "content_block_start"]
    assert (start.index, start.content_block.type, start.content_block.input) == (0, "tool_use", {})
    assert start.content_block.name == whole.name
    deltas = [one.delta for one in events if one.type == "content_block_delta"]
    assert {one.type for one in deltas} == {"input_json_delta"}
    assert json.loads("".join(one.partial_json for one in deltas)) == whole.input
    assert events[-2].delta.stop_reason == "tool_use"


def test_the_streaming_helper_with_tools(claude):
    with claude.messages.stream(**CALLING) as stream:
        events = list(stream)
        message = stream.get_final_message()
    snapshots = [one.snapshot for one in events if one.type == "input_json"]
    (block,) = [one.content_block for one in events if one.type == "content_block_stop"]
    assert snapshots[-1] == block.input == message.content[0].input
    assert block.input["country"] in COUNTRIES["properties"]["country"]["enum"]


def test_the_streaming_helper_with_text(claude):
    with claude.messages.stream(**ASKED) as stream:
        assert "".join(stream.text_stream) == "Paris."
    with claude.messages.stream(**ASKED) as stream:
        assert stream.get_final_text() == "Paris."
        assert len(stream.request_id) == 32


def test_a_parsed_answer(claude):
    message = claude.messages.parse(
        model=MODEL, max_tokens=1000, messages=[QUESTION], output_format=Capital
    )
    assert isinstance(message.parsed_output, Capital)


def test_the_runner_of_tools(claude):
    asked = []

    @anthropic.beta_tool
    def look_up(country: Literal["France", "Peru"]) -> str:
        """Look a country up.

        Args:
            country: its name
        """
        asked.append(country)
        return "Paris"

    runner = claude.beta.messages.tool_runner(
        **{**ASKED, "max_tokens": 60, "tool_choice": ONE_CALL, "tools": [look_up]},
        max_iterations=2,
    )
    first, second = list(runner)
    assert len(asked) == 2
    assert first.stop_reason == "tool_use"
    assert second.usage.input_tokens + second.usage.cache_read_input_tokens > sum(
        (first.usage.input_tokens, first.usage.cache_read_input_tokens, first.usage.output_tokens)
    )


def test_raw_answers(claude):
    raw = claude.messages.with_raw_response.create(**ASKED)
    assert raw.headers["content-type"] == "application/json"
    assert len(raw.headers["request-id"]) == 32
    assert raw.parse().content[0].text == "Paris."


def test_the_asynchronous_client(server):
    async def whole(client):
        return (await client.messages.create(**ASKED)).content[0].text

    async def streamed(client):
        async with client.messages.stream(**ASKED) as stream:
            return "".join([text async for text in stream.text_stream])

    async def called(client):
        async with client.messages.stream(**CALLING) as stream:
            return (await stream.get_final_message()).content[0].type

    async def counted(client):
        counts = await client.messages.count_tokens(model=MODEL, messages=[QUESTION])
        return counts.input_tokens

    async def run():
        options = {"base_url": server.url, "api_key": "none", "max_retries": 0}
        async with anthropic.AsyncAnthropic(**options) as client:
            askers = [whole, streamed, called, counted]
            return await asyncio.gather(*[ask(client) for ask in askers for _ in range(3)])

    expected = ["Paris."] * 6 + ["tool_use"] * 3 + [12] * 3
    assert asyncio.run(run()) == expected


@pytest.mark.parametrize("reads", [0, 2])
def test_a_client_that_stops_reading(claude, server, reads):
    begun = [QUESTION, {"role": "assistant", "content": "The capital"}]
    with claude.messages.create(**{**ASKED, "messages": begun}, stream=True) as stream:
        for _ in range(reads):
            assert next(iter(stream)).type
    server.wait_until_idle()
