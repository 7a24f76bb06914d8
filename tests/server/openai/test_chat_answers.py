"""Chat answers that capitals would never give: calls in pieces of any size, whole and as events."""

import json
from types import SimpleNamespace

import pytest

from glm_engine.server.choices import TextDelta, Turn
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.openai.chat_completions import ChatPresenter, ChatRequest
from glm_engine.text.dialogue import DialogueParser
from tests.python.text.dialogue.folding import tool

TOOLS = [tool("weather", city="string", days="integer")]
PARIS = (
    "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>"
)
CALLS = f"{PARIS}<tool_call>weather</tool_call>"
SIZES = [1, 2, 7, 1000]


class Told:
    """Gives a presenter the text of one choice until it says that it has enough of it."""

    def __init__(
        self,
        text,
        size,
        reason="stop",
        in_reasoning=False,
        is_streamed=False,
        is_cut=False,
        **options,
    ):
        self.is_enough = False
        record = RequestRecord("/v1/chat/completions", prompt_tokens=9)
        self.choice = SimpleNamespace(index=0, num_tokens=7, finish_reason=reason)
        job = SimpleNamespace(record=record, choices=[self.choice], complete=self.complete)
        turn = Turn(DialogueParser(in_reasoning, TOOLS), **options)
        fields = ChatRequest(messages=[{"role": "user", "content": "?"}], stream=is_streamed)
        self.presenter = ChatPresenter(SimpleNamespace(model_name="glm"), job, fields, [turn])
        give = self.presenter.event if is_streamed else self.presenter.take
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        self.answers, self.num_pieces = [], 0
        for number, piece in enumerate(pieces, 1):
            is_last = number == len(pieces)
            end = reason if is_last else None
            self.answers.append(give(self.choice, TextDelta(piece, 1, [], end, is_cut=is_cut)))
            self.num_pieces = number
            if self.is_enough:
                self.answers.append(give(self.choice, TextDelta("", 0, [], "stop")))
                break

    def complete(self, choice):
        assert choice is self.choice
        self.is_enough = True


def whole(*arguments, **options):
    return json.loads(Told(*arguments, **options).presenter.body())["choices"][0]


def streamed(*arguments, **options):
    """The message put together from events, and the reasons in them."""
    told = Told(*arguments, is_streamed=True, **options)
    events = b"".join(told.answers).decode().removeprefix("data: ").split("\n\ndata: ")
    choices = [json.loads(event)["choices"][0] for event in events]
    message = {"content": "", "reasoning_content": "", "tool_calls": []}
    for choice in choices:
        assert choice["delta"].get("reasoning") == choice["delta"].get("reasoning_content")
        for name in ("content", "reasoning_content"):
            message[name] += choice["delta"].get(name, "")
        for call in choice["delta"].get("tool_calls", ()):
            if "id" in call:
                message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
            message["tool_calls"][call["index"]]["arguments"] += call["function"]["arguments"]
    return message, [choice["finish_reason"] for choice in choices]


def functions(message):
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message["tool_calls"]
    ]


@pytest.mark.parametrize("size", SIZES)
def test_calls_in_pieces_of_any_size(size) -> None:
    choice = whole(f"I look.{CALLS}", size)
    message = choice["message"]
    assert message["content"] == "I look."
    assert choice["finish_reason"] == "tool_calls"
    assert functions(message) == [("weather", {"city": "Paris", "days": 3}), ("weather", {})]
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    message, reasons = streamed(f"I look.{CALLS}", size)
    assert message["content"] == "I look."
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]
    arguments = [json.loads(call["arguments"]) for call in message["tool_calls"]]
    assert arguments == [{"city": "Paris", "days": 3}, {}]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reason", ["stop", "length"])
def test_of_parallel_calls_a_client_that_takes_one_gets_the_first(size, reason) -> None:
    told = Told(f"I look.{CALLS} and more", size, reason, takes_one_call=True)
    choice = json.loads(told.presenter.body())["choices"][0]
    assert functions(choice["message"]) == [("weather", {"city": "Paris", "days": 3})]
    assert choice["message"]["content"] == "I look."
    assert choice["finish_reason"] == "tool_calls"
    if size < len(PARIS):
        assert told.is_enough
        assert told.num_pieces == -(-len(f"I look.{PARIS}") // size)
    message, reasons = streamed(f"I look.{CALLS}", size, reason, takes_one_call=True)
    assert len(message["tool_calls"]) == 1
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]


@pytest.mark.parametrize("size", SIZES)
def test_a_thought_that_ends_in_calls_made_them(size) -> None:
    choice = whole(f"So: {CALLS}", size, in_reasoning=True)
    assert choice["message"]["reasoning_content"] == choice["message"]["reasoning"] == "So:"
    assert choice["message"]["content"] is None
    assert len(functions(choice["message"])) == 2
    assert choice["finish_reason"] == "tool_calls"
    message, reasons = streamed(f"So: {CALLS}", size, in_reasoning=True)
    assert message["reasoning_content"] == "So:"
    assert len(message["tool_calls"]) == 2
    assert reasons[-1] == "tool_calls"


@pytest.mark.parametrize(
    ("text", "reason"), [(f"So: {CALLS}", "length"), (f"So: {CALLS} or not", "stop")]
)
def test_a_thought_that_might_go_on_or_does_made_no_calls(text, reason) -> None:
    choice = whole(text, 7, reason, in_reasoning=True)
    assert choice["message"]["reasoning_content"] == text
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == reason


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", [PARIS[:-12], PARIS[:-1], PARIS[:-13]])
def test_a_call_that_the_model_ended_without_its_last_tag(text, size) -> None:
    choice = whole(text, size)
    assert functions(choice["message"]) == [("weather", {"city": "Paris", "days": 3})]
    assert choice["finish_reason"] == "tool_calls"
    message, reasons = streamed(text, size)
    assert [json.loads(call["arguments"]) for call in message["tool_calls"]] == [
        {"city": "Paris", "days": 3}
    ]
    assert reasons[-1] == "tool_calls"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("text", "reason", "is_cut"),
    [
        (PARIS[:-30], "stop", False),
        (PARIS[:-12], "length", True),
        (PARIS[:-12], "stop", True),
        (PARIS[:-1], "stop", True),
        (PARIS.replace("Paris", "in </arg_value> text"), "stop", False),
    ],
)
def test_a_call_that_is_not_whole_is_open_in_a_stream_and_nowhere_else(
    text, reason, is_cut, size
) -> None:
    choice = whole(text, size, reason, is_cut=is_cut)
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == reason
    message, reasons = streamed(text, size, reason, is_cut=is_cut)
    [call] = message["tool_calls"]
    with pytest.raises(ValueError, match=r"line 1"):
        json.loads(call["arguments"])
    assert reasons[-1] == reason


@pytest.mark.parametrize("size", SIZES)
def test_after_a_whole_call_one_that_is_not_asks_for_nothing(size) -> None:
    choice = whole(f"{PARIS}{PARIS[:-30]}", size)
    assert functions(choice["message"]) == [("weather", {"city": "Paris", "days": 3})]
    assert choice["finish_reason"] == "stop"
    assert streamed(f"{PARIS}{PARIS[:-30]}", size)[1][-1] == "stop"
