"""Events and bodies of answers that capitals would never give, read by the official client."""

from types import SimpleNamespace

import anthropic
import httpx2
import pytest

from glm_engine.server.anthropic.message_events import MessagePresenter, MessageStream, MessageTurn
from glm_engine.server.choices import TextDelta
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.text.dialogue import DialogueParser
from tests.python.text.dialogue.folding import tool

TOOLS = [tool("look_up", country="string", year="integer")]
ONE = "<tool_call>look_up<arg_key>country</arg_key><arg_value>Fra"
CALL = f"{ONE}nce</arg_value><arg_key>year</arg_key><arg_value>2026</arg_value></tool_call>"
INPUT = {"country": "France", "year": 2026}


def presenter_of(in_reasoning=False, **options):
    record = RequestRecord("/v1/messages", prompt_tokens=9, cached_tokens=4)
    choice = SimpleNamespace(num_tokens=7, matcher=None, finish_reason="stop")
    job = SimpleNamespace(record=record, choices=[choice], complete=[].append)
    turn = MessageTurn(DialogueParser(in_reasoning, TOOLS), **options)
    return MessagePresenter(SimpleNamespace(model_name="glm"), job, turn), choice


def pieces_of(text, size, finish_reason):
    texts = [text[at : at + size] for at in range(0, len(text), size)]
    ends = [None] * (len(texts) - 1) + [finish_reason]
    return [TextDelta(one, 1, [], end) for one, end in zip(texts, ends, strict=True)]


class Answering(httpx2.BaseTransport):
    """Gives one answer to every request."""

    def __init__(self, content, content_type):
        self.content = content
        self.content_type = content_type

    def handle_request(self, request):
        headers = {"content-type": self.content_type}
        return httpx2.Response(200, headers=headers, content=self.content, request=request)


def client_of(content, content_type):
    http = httpx2.Client(transport=Answering(content, content_type))
    return anthropic.Anthropic(api_key="none", max_retries=0, http_client=http)


ASKED = {"model": "glm", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}


def streamed(text, size=5, finish_reason="stop", **options):
    presenter, choice = presenter_of(**options)
    choice.finish_reason = finish_reason
    pieces = pieces_of(text, size, finish_reason)
    said = [presenter.event(choice, piece) for piece in pieces]
    events = b"".join([presenter.opening(), *said])
    client = client_of(events + presenter.closing(), "text/event-stream")
    with client.messages.stream(**ASKED) as stream:
        return list(stream), stream.get_final_message()


def whole(text, size=5, finish_reason="stop", **options):
    presenter, choice = presenter_of(**options)
    choice.finish_reason = finish_reason
    for piece in pieces_of(text, size, finish_reason):
        presenter.take(choice, piece)
    return client_of(presenter.body(), "application/json").messages.create(**ASKED)


def told(message):
    """Blocks without the ids, which are random."""
    blocks = [block.to_dict() for block in message.content]
    return [{name: one for name, one in block.items() if name != "id"} for block in blocks]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_thought_text_and_calls(size):
    text = f"Let me see.</think>I look it up.{CALL}{CALL}"
    events, message = streamed(text, size, in_reasoning=True)
    assert told(message) == told(whole(text, size, in_reasoning=True))
    thought, said, *calls = message.content
    assert (thought.type, thought.thinking) == ("thinking", "Let me see.")
    assert len(thought.signature) == 64
    assert said.text == "I look it up."
    assert [(call.name, call.input) for call in calls] == [("look_up", INPUT)] * 2
    assert calls[0].id != calls[1].id
    assert all(call.id.startswith("toolu_") for call in calls)
    assert message.stop_reason == "tool_use"
    starts = [event.index for event in events if event.type == "content_block_start"]
    assert starts == [0, 1, 2, 3]


def test_usage():
    _, message = streamed("x")
    for usage in (message.usage, whole("x").usage):
        assert usage.input_tokens == 5
        assert usage.cache_read_input_tokens == 4
        assert usage.output_tokens == 7


def test_strings_of_arguments_stream():
    events, _ = streamed(CALL, size=1)
    pieces = [event.partial_json for event in events if event.type == "input_json"]
    assert len(pieces) > 8
    assert "".join(pieces) == '{"country": "France", "year": 2026}'


def test_call_that_was_cut():
    _, message = streamed(ONE, finish_reason="length")
    assert message.stop_reason == "max_tokens"
    assert message.content[0].input == {}
    for cut in (CALL.partition("2026")[0], CALL[:-12], CALL[:-1]):
        message = whole(f"{CALL}{cut}", finish_reason="length")
        assert [block.input for block in message.content] == [INPUT]
        assert message.stop_reason == "max_tokens"
    assert whole(ONE).content == []
    assert whole(ONE).stop_reason == whole(f"{CALL}{ONE}").stop_reason == "end_turn"


@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("text", [CALL[:-12], CALL[:-1]])
def test_call_that_the_model_ended_without_its_last_tag(text, size):
    _, message = streamed(text, size)
    assert told(message) == told(whole(text, size))
    assert [block.input for block in message.content] == [INPUT]
    assert message.stop_reason == "tool_use"


def test_answer_cut_by_the_context():
    _, message = streamed("x", finish_reason="length", is_cut_short=True)
    assert message.stop_reason == "model_context_window_exceeded"


def test_one_call_where_the_client_takes_one():
    for reason in ("stop", "length"):
        message = whole(f"{CALL}{CALL} and more", takes_one_call=True, finish_reason=reason)
        assert [block.type for block in message.content] == ["tool_use"]
        assert message.stop_reason == "tool_use"


def test_arguments_that_nest_deeply():
    value = "[" * 300 + "]" * 300
    text = f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>"
    presenter, choice = presenter_of()
    presenter.take(choice, TextDelta(text, 1, [], "stop"))
    assert value.encode() in presenter.body()


def test_error_inside_a_stream():
    stream = MessageStream(None, SimpleNamespace(record=None), None)
    event = stream.failure(ApiError(500, "the engine failed"), "/v1/messages")
    with pytest.raises(anthropic.APIStatusError) as caught:
        list(client_of(event, "text/event-stream").messages.create(stream=True, **ASKED))
    expected = {"type": "api_error", "message": "the engine failed"}
    assert caught.value.body == {"type": "error", "error": expected}
