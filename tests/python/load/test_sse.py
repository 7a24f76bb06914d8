"""Bytes of streams, cut anywhere, against what was put into them."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.load.sse import MOST_LINE, TokenStream, WholeAnswer

TEXTS = st.text(min_size=1, max_size=12)
KINDS = st.sampled_from(["text", "content", "reasoning", "reasoning_content", "arguments"])
LINE_ENDS = st.sampled_from(["\n\n", "\r\n\r\n"])
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": ")])
USAGE = {"prompt_tokens": 7, "completion_tokens": 9}
COUNTS = {**USAGE, "cached_tokens": 0}


def choice(kind: str, text: str) -> dict:
    if kind == "text":
        return {"index": 0, "text": text, "logprobs": None}
    if kind == "arguments":
        return {"delta": {"tool_calls": [{"function": {"arguments": text}}]}}
    return {"delta": {kind: text}, "logprobs": {"content": [{"token": text}]}}


@st.composite
def streams(draw):
    """The bytes of a whole stream, its number of events with text, and cuts."""
    end, separators = draw(LINE_ENDS), draw(SEPARATORS)
    texts = draw(st.lists(st.tuples(KINDS, TEXTS), max_size=8))
    events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    events += [{"id": "x", "choices": [choice(*one)]} for one in texts]
    events += [{"choices": [{"text": "", "finish_reason": "length"}]}]
    events += [{"choices": [], "usage": USAGE}]
    ascii_only = draw(st.booleans())
    lines = [json.dumps(event, separators=separators, ensure_ascii=ascii_only) for event in events]
    data = "".join(f"data: {line}{end}" for line in [*lines, "[DONE]"])
    data = (": keep-alive" + end + data).encode("utf-8", "surrogatepass")
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return data, len(texts), [0, *cuts, len(data)]


@given(streams())
def test_any_cut_gives_the_same_counts(stream):
    data, num_texts, cuts = stream
    answer = TokenStream(9)
    for at, (begin, end) in enumerate(pairwise(cuts)):
        answer.take(data[begin:end], float(at))
    assert answer.arrived.num_events == num_texts
    assert answer.failure() is None
    assert answer.usage == COUNTS
    assert answer.rest == b""


def test_times_are_those_of_the_pieces():
    answer = TokenStream(9)
    event = b'data: {"choices":[{"text":"a"}]}\n\n'
    answer.take(event[:20], 1.0)
    answer.take(event[20:] + event, 2.0)
    answer.take(event, 5.0)
    assert (answer.arrived.first, answer.arrived.last) == (2.0, 5.0)
    assert answer.arrived.gaps().tolist() == [0.0, 3.0]


def test_events_of_one_read_share_the_time_since_the_read_before():
    answer = TokenStream(9)
    event = b'data: {"choices":[{"text":"a"}]}\n\n'
    for now, count in ((1.0, 1), (1.5, 1), (3.0, 3), (3.25, 1), (4.25, 2)):
        answer.take(event * (count - 1), now)
        answer.take(event, now)
    assert answer.arrived.num_events == 8
    assert answer.arrived.gaps().tolist() == [0.5, 0.5, 0.5, 0.5, 0.25, 0.5, 0.5]


def test_a_stream_without_its_end_is_cut_off():
    answer = TokenStream(9)
    answer.take(b'data: {"choices":[{"text":"a"}]}\n\n', 1.0)
    assert answer.failure() == ("cut off", "the stream ended without [DONE]")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (b'{"error": {"message": "out of pages"}}', "out of pages"),
        (b'{"error": "short"}', "short"),
        (b"{", "expected a JSON object in an event, got b'{'"),
        (b"[1]", "expected a JSON object in an event, got b'[1]'"),
    ],
)
def test_an_error_inside_a_stream(event, message):
    answer = TokenStream(9)
    answer.take(b"data: " + event + b"\n\ndata: [DONE]\n\n", 1.0)
    assert answer.failure() == ("error in the stream", message)


def test_a_whole_answer():
    answer = WholeAnswer()
    for piece in (b'{"usage": {"completion_', b'tokens": 9, "prompt_tokens": 7}}'):
        answer.take(piece, 1.0)
    assert answer.failure() is None
    assert answer.usage == COUNTS


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]"])
def test_a_whole_answer_that_is_no_object(content):
    answer = WholeAnswer()
    answer.take(content, 1.0)
    assert answer.failure()[0] == "invalid JSON"


def stream_of(*events, end="data: [DONE]\n\n"):
    answer = TokenStream(9)
    text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    answer.take((text + end).encode(), 1.0)
    return answer


def test_usage_in_an_event_with_text_is_read():
    texts = [{"choices": [{"text": "a"}], "usage": None}] * 2
    answer = stream_of(*texts, {"choices": [{"text": "b"}], "usage": USAGE})
    assert (answer.arrived.num_events, answer.usage, answer.failure()) == (3, COUNTS, None)


def test_a_text_that_speaks_of_usage_is_none():
    answer = stream_of({"choices": [{"text": '"usage": {"completion_tokens": 5}'}]})
    assert (answer.arrived.num_events, answer.usage) == (1, None)


@pytest.mark.parametrize(
    "usage", ["x", 5, [], {}, {"completion_tokens": "5"}, {"prompt_tokens": 7}, [USAGE], True]
)
def test_a_usage_that_counts_nothing_is_none(usage):
    answer = stream_of({"choices": [], "usage": usage})
    assert (answer.usage, answer.failure()) == (None, None)


@pytest.mark.parametrize("details", [None, 3, [], {"cached_tokens": "4"}, {"cached_tokens": None}])
def test_what_is_no_number_of_cached_tokens_is_zero(details):
    answer = stream_of({"choices": [], "usage": {**USAGE, "prompt_tokens_details": details}})
    assert answer.usage == COUNTS


def test_the_end_needs_no_line_of_its_own():
    assert stream_of({"choices": [{"text": "a"}]}, end="data: [DONE]").failure() is None
    assert stream_of({"choices": [{"text": "a"}]}, end="data: [DO").failure()[0] == "cut off"


def test_far_more_events_than_tokens_are_too_many():
    answer = TokenStream(2)
    event = b'data: {"choices":[{"text":"a"}]}\n'
    answer.take(event * (16 * 2 + 1024), 1.0)
    assert answer.excess is None
    answer.take(event * 100_000, 1.0)
    assert answer.excess == "the stream has more than 1056 events with text"


def test_a_line_without_end_is_too_long():
    answer = TokenStream(9)
    answer.take(b"data: " + b"x" * MOST_LINE, 1.0)
    assert answer.excess == "a line of the stream has more than 1048576 bytes"


@pytest.mark.parametrize("count", [-1, 2**31, 2**63, 1e300])
def test_counts_that_no_answer_has_are_none(count):
    assert stream_of({"choices": [], "usage": {"completion_tokens": count}}).usage is None


def test_messages_are_cut_and_have_no_control_characters():
    answer = stream_of({"error": {"message": "\x1b[2J" + "x" * 9999}})
    assert answer.error == r"\x1b[2J" + "x" * 496
