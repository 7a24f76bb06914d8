"""Events and bodies of answers that capitals would never give, read by the client's models."""

from types import SimpleNamespace

import httpx2
import openai
import pytest

from glm_engine.server.choices import LogprobRows, TextDelta, Turn
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.http.streaming import chunks_of
from glm_engine.server.openai.responses.output_items import thought_of
from glm_engine.server.openai.responses.response_events import ResponsePresenter, ResponseStream
from glm_engine.server.openai.responses.response_fields import LOGPROBS, THOUGHTS, ResponsesRequest
from glm_engine.text.dialogue import DialogueParser
from tests.python.text.dialogue.folding import tool
from tests.server.openai.responses.validation import (
    check_order,
    read_events,
    read_response,
    told,
)

TOOLS = [tool("look_up", country="string", year="integer")]
OPEN = "<tool_call>look_up<arg_key>country</arg_key><arg_value>Fra"
CALL = f"{OPEN}nce</arg_value><arg_key>year</arg_key><arg_value>2026</arg_value></tool_call>"
ARGUMENTS = '{"country": "France", "year": 2026}'
THOUGHT = "Let me\nsee."
ALL = f"{THOUGHT}</think>\nI look it up.\n{CALL}{CALL}"
SIZES = [1, 2, 7, 1000]
ASKED = {"model": "glm", "input": "x"}


class Told:
    """Gives a presenter the text of one choice, as tokens of `size` characters."""

    def __init__(self, text, size=5, together=1, reason="stop", in_reasoning=False, **options):
        self.model_name = "glm"
        self.defaults = {"temperature": 1.0, "top_p": 1.0}
        takes_one = options.pop("parallel_tool_calls", True) is False
        fields = ResponsesRequest.model_validate({**ASKED, **options})
        record = RequestRecord("/v1/responses", prompt_tokens=9, cached_tokens=4)
        self.choice = SimpleNamespace(index=0, num_tokens=7, finish_reason=None)
        job = SimpleNamespace(record=record, choices=[self.choice], complete=[].append)
        self.has_logprobs = LOGPROBS in options.get("include", ())
        self.tokens = [text[at : at + size] for at in range(0, len(text), size)]
        self.pieces = [self.piece(at, together) for at in range(0, len(self.tokens), together)]
        self.pieces[-1].finish_reason = reason
        turn = Turn(DialogueParser(in_reasoning, TOOLS), takes_one_call=takes_one)
        self.presenter = ResponsePresenter(self, job, fields, turn)

    def spelling(self, token_id):
        return self.tokens[token_id].encode()

    def piece(self, at, together):
        tokens = self.tokens[at : at + together]
        begin = len("".join(self.tokens[:at]))
        places = []
        for token in tokens:
            places.append((begin, begin + len(token)))
            begin += len(token)
        rows = LogprobRows()
        for number in range(len(tokens) if self.has_logprobs else 0):
            rows.append(at + number, -0.5)
        return TextDelta("".join(tokens), len(tokens), rows, None, places)

    def give(self, method):
        for piece in self.pieces:
            self.choice.finish_reason = piece.finish_reason
            yield method(self.choice, piece)

    def streamed(self):
        begun = [self.presenter.opening(), *self.give(self.presenter.event)]
        return b"".join(chunks_of(*begun, self.presenter.closing()))

    def events(self):
        events = read_events(self.streamed().decode())
        check_order(events)
        return events

    def whole(self):
        assert not any(self.give(self.presenter.take))
        return read_response(b"".join(chunks_of(self.presenter.body())))


def both(*arguments, **options):
    """Return the response that a stream and a whole answer agree on."""
    response = Told(*arguments, **options).events()[-1].response
    whole = Told(*arguments, **options).whole()
    assert told(response.output) == told(whole.output)
    assert (response.status, response.usage) == (whole.status, whole.usage)
    return response


@pytest.mark.parametrize("size", SIZES)
def test_thought_text_and_calls(size):
    response = both(ALL, size, in_reasoning=True)
    thought, said, *calls = response.output
    assert [one.type for one in response.output] == ["reasoning", "message", *["function_call"] * 2]
    assert ([part.text for part in thought.content], thought.summary) == ([THOUGHT], [])
    assert thought.encrypted_content is None
    assert [part.text for part in said.content] == ["I look it up."]
    assert [(call.name, call.arguments) for call in calls] == [("look_up", ARGUMENTS)] * 2
    assert len({call.call_id for call in calls} | {call.id for call in calls}) == 4
    assert {item.status for item in response.output} == {"completed"}
    assert (response.status, response.incomplete_details) == ("completed", None)


def test_a_call_in_a_namespace_has_both_names():
    inside = [{"type": "function", "name": "up"}]
    namespace = {"type": "namespace", "name": "look", "description": "x", "tools": inside}
    response = both(CALL.replace("look_up", "look__up"), tools=[namespace])
    [call] = response.output
    assert (call.namespace, call.name) == ("look", "up")
    assert response.tools[0].tools[0].name == "up"
    assert both(CALL, tools=[namespace]).output[0].namespace is None


@pytest.mark.parametrize("size", SIZES)
def test_a_thought_that_ends_in_a_call(size):
    response = both(f"{THOUGHT}{CALL}", size, in_reasoning=True)
    assert [one.type for one in response.output] == ["reasoning", "function_call"]
    assert response.output[0].content[0].text == THOUGHT


def test_every_number_of_usage():
    usage = both(ALL, 1, in_reasoning=True).usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens) == (9, 4)
    assert (usage.output_tokens, usage.total_tokens) == (7, 16)
    assert usage.output_tokens_details.reasoning_tokens == len(THOUGHT)


@pytest.mark.parametrize("together", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_tokens_are_those_that_spell_the_text_however_they_come(size, together):
    text = f"{THOUGHT}</think>\n\nIt is <tool_calm> {CALL}Really."
    options = {"in_reasoning": True, "include": [LOGPROBS]}
    response = both(text, size, together, **options)
    alone = both(text, size, 1, **options)
    assert told(response.output) == told(alone.output)
    assert response.usage == alone.usage
    _, first, _, second = response.output
    for item, said in ((first, "It is <tool_calm>"), (second, " Really.")):
        [part] = item.content
        assert part.text == said
        spelled = "".join(row.token for row in part.logprobs)
        assert said.lstrip() in spelled
        assert len(spelled) - len(said) < 2 * size
        assert b"".join(bytes(row.bytes) for row in part.logprobs).decode() == spelled


def test_no_logprobs_unless_asked_for():
    [message] = both("Paris.").output
    assert message.content[0].logprobs == []


def test_strings_of_arguments_stream():
    pieces = [
        event.delta for event in Told(CALL, 1).events() if event.type.endswith("arguments.delta")
    ]
    assert len(pieces) > 8
    assert "".join(pieces) == ARGUMENTS


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        (THOUGHT, ["incomplete"]),
        (f"{THOUGHT}</think>It", ["completed", "incomplete"]),
        (f"{THOUGHT}</think>It{OPEN}", ["completed", "completed"]),
        (f"{THOUGHT}</think>It{CALL[:-12]}", ["completed", "completed"]),
        (f"{THOUGHT}</think>{CALL}", ["completed", "completed"]),
    ],
)
def test_answers_that_were_cut(text, statuses):
    response = both(text, in_reasoning=True, reason="length")
    assert [item.status for item in response.output] == statuses
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.completed_at is None
    assert Told(text, reason="length").events()[-1].type == "response.incomplete"


@pytest.mark.parametrize("size", SIZES)
def test_a_call_that_is_not_whole_is_incomplete_and_not_listed(size):
    response = both(OPEN, size)
    assert response.output == []
    assert response.status == "completed"
    events = Told(OPEN, size).events()
    [done] = [event for event in events if event.type == "response.output_item.done"]
    assert (done.item.status, done.item.arguments) == ("incomplete", '{"country": "Fra')
    assert "response.function_call_arguments.done" not in [event.type for event in events]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", [CALL[:-12], CALL[:-1]])
def test_a_call_that_the_model_ended_without_its_last_tag(text, size):
    [call] = both(text, size).output
    assert (call.status, call.arguments) == ("completed", ARGUMENTS)


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_one_call_where_the_client_takes_one(reason):
    response = both(f"{CALL}{CALL} and more", reason=reason, parallel_tool_calls=False)
    assert [item.type for item in response.output] == ["function_call"]
    assert response.status == "completed"


def test_nothing_said():
    events = Told("\n").events()
    assert [event.type for event in events] == [
        *("response.created", "response.in_progress", "response.completed"),
    ]
    assert events[-1].response.output == []


def test_thoughts_that_clients_send_back_sealed():
    response = both(f"{THOUGHT}</think>x", in_reasoning=True, include=[THOUGHTS])
    item = response.output[0]
    item.content = None
    assert thought_of(item) == THOUGHT
    item.encrypted_content = "gAAAAABmZW5j"
    assert thought_of(item) == ""


def test_deep_arguments():
    value = "[" * 300 + "]" * 300
    text = f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>"
    [call] = both(text, 1000).output
    assert value in call.arguments


class Answering(httpx2.BaseTransport):
    """Gives one stream to every request."""

    def __init__(self, content):
        self.content = content

    def handle_request(self, request):
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, content=self.content, request=request)


def client_of(content):
    http = httpx2.Client(transport=Answering(content))
    return openai.OpenAI(api_key="none", max_retries=0, http_client=http)


@pytest.mark.parametrize("num_pieces", [0, 2])
def test_an_error_inside_a_stream(num_pieces):
    telling = Told(ALL, in_reasoning=True)
    stream = ResponseStream(None, None, telling.presenter)
    giving = telling.give(telling.presenter.event)
    begun = [telling.presenter.opening(), *(next(giving) for _ in range(num_pieces))]
    error = ApiError(408, "the deadline passed", code="deadline_exceeded")
    content = b"".join(chunks_of(*begun, stream.failure(error, "/v1/responses")))
    *_, told_error, failed = read_events(content.decode())
    assert (told_error.type, told_error.code) == ("error", "deadline_exceeded")
    assert told_error.message == failed.response.error.message == "the deadline passed"
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert failed.response.error.code == "server_error"
    assert [item.status for item in failed.response.output] == ["incomplete"] * bool(num_pieces)
    with client_of(content).responses.stream(**ASKED) as events:
        kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-2:] == ["error", "response.failed"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "invalid_prompt"), (429, "rate_limit_exceeded"), (503, "server_error")],
)
def test_errors_have_the_codes_that_clients_know(status, code):
    told_failure = Told("x").presenter.failure(ApiError(status, "why"))
    [*_, failed] = read_events(b"".join(chunks_of(told_failure)).decode())
    assert failed.response.error.code == code


def test_the_client_puts_the_stream_together():
    content = Told(ALL, 3, in_reasoning=True).streamed()
    with client_of(content).responses.stream(**ASKED) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text == "I look it up."
    assert [item.type for item in final.output][2:] == ["function_call"] * 2
