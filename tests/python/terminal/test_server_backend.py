"""Streams of OpenAI's chat interface, cut anywhere, against the deltas that were put into them."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.server.openai.answer_events import Answer, message_delta
from glm_engine.terminal.server_backend import ChatStream
from glm_engine.text.dialogue import CallArguments, CallBegin, Content, Reasoning

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
STRANGE = [
    {},
    {"choices": None},
    {"choices": []},
    {"choices": [5]},
    {"choices": [{"delta": None, "finish_reason": 7}]},
    {"choices": [{"delta": {"content": None, "reasoning": 1, "tool_calls": "x"}}]},
    {"choices": [{"delta": {"content": ["a"], "tool_calls": []}}]},
]


def event(delta, reason=None):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call(number, **function):
    return {"tool_calls": [{"index": number, "function": function}]}


@st.composite
def answers(draw):
    """The events of an answer, and its thought, text and calls."""
    thought, text = draw(st.lists(TEXTS)), draw(st.lists(TEXTS))
    name = draw(st.sampled_from(["reasoning", "reasoning_content"]))
    calls = draw(st.lists(st.tuples(TEXTS, st.lists(TEXTS)), max_size=3))
    events = [event({"role": "assistant", "content": ""})]
    events += [event({name: one}) for one in thought] + [event({"content": one}) for one in text]
    for number, (called, pieces) in enumerate(calls):
        events.append(event(call(number, name=called, arguments="")))
        events += [event(call(number, arguments=piece)) for piece in pieces]
    events.append(event({}, "stop"))
    wanted = [(called, "".join(pieces)) for called, pieces in calls]
    return events, ("".join(thought), "".join(text), wanted)


def read(pieces):
    """Return the stream that was given these pieces, and the message that it made."""

    async def run():
        stream, answer = ChatStream(), Answer()
        for piece in pieces:
            stream.take(piece, 0.0)
            assert stream.arrived.is_set()
            answer.take(message_delta(stream.taken()), None)
        return stream, answer.message()

    return asyncio.run(run())


@given(answers(), st.data())
def test_any_cut_gives_the_same_answer(answer, data):
    events, (thought, text, calls) = answer
    lines = [json.dumps(one, ensure_ascii=False) for one in events] + ["[DONE]"]
    content = "".join(f"data: {line}\n\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    cuts = [0, *cuts, len(content)]
    stream, message = read([content[begin:end] for begin, end in pairwise(cuts)])
    assert (stream.failure(), stream.excess, stream.finish_reason) == (None, None, "stop")
    assert (message.get("reasoning_content", ""), message["content"] or "") == (thought, text)
    functions = [one["function"] for one in message.get("tool_calls", ())]
    assert [(one["name"], one["arguments"]) for one in functions] == calls


@pytest.mark.parametrize("strange", STRANGE)
def test_what_has_another_form_says_nothing(strange):
    stream, message = read([b"data: %s\n\n" % json.dumps(strange).encode()])
    assert (stream.excess, stream.error, message["content"]) == (None, None, "")
    assert stream.failure() == ("cut off", "the stream ended without [DONE]")


def test_an_error_in_the_stream_is_its_failure():
    stream, _ = read([b'data: {"error": {"message": "gone \\u001b[2J"}}\n\ndata: [DONE]\n\n'])
    assert stream.failure() == ("error in the stream", "gone \\x1b[2J")


def test_mixed_calls_are_refused():
    events = [event(call(number, name="f")) for number in (0, 1, 0)]
    stream, _ = read([b"data: %s\n\n" % json.dumps(one).encode() for one in events])
    assert "tool calls" in stream.excess


def test_deltas_are_taken_once():
    async def run():
        stream = ChatStream()
        both = {"reasoning": "a", "content": "b", **call(3, name="f", arguments="{}")}
        stream.take(b"data: %s\n" % json.dumps(event(both)).encode(), 0.0)
        return stream.taken(), stream.taken()

    first = [Reasoning("a"), Content("b"), CallBegin(0, "f"), CallArguments(0, "{}")]
    assert asyncio.run(run()) == (first, [])
