"""The official client against `glm serve` on capitals."""

import json

import anthropic
import pytest

from tests.server.serving import MODEL

QUESTION = {"role": "user", "content": "What is the capital of France?"}
ASKED = {
    "model": MODEL,
    "max_tokens": 32,
    "messages": [QUESTION],
    "extra_body": {"temperature": 0},
}
TOOL = {
    "name": "look_up",
    "description": "Looks a country up.",
    "input_schema": {"type": "object", "properties": {"country": {"type": "string"}}},
}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"country": "France"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Paris"}


def ask(claude, **changes):
    return claude.messages.create(**{**ASKED, **changes})


def test_whole_answer(claude):
    message = ask(claude)
    assert [block.text for block in message.content] == ["Paris."]
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens == 12
    assert 0 < message.usage.output_tokens <= 6
    assert message.id == f"msg_{message._request_id}"


def test_streamed_answer(claude):
    with claude.messages.stream(**ASKED) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert message.content[0].text == "Paris."
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == ask(claude).usage.output_tokens
    shown = [kind for kind in kinds if kind not in ("text", "content_block_delta")]
    assert shown == [
        *("message_start", "content_block_start", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


def test_raw_events(server):
    body = {"model": MODEL, "max_tokens": 3, "messages": [QUESTION], "stream": True}
    answer = server.http.post("/v1/messages", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    names = [line[7:] for line in answer.text.splitlines() if line.startswith("event: ")]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "[DONE]" not in answer.text


def test_max_tokens(claude):
    message = ask(claude, max_tokens=1)
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 1


@pytest.mark.parametrize("stream", [False, True])
def test_stop_sequence(claude, stream):
    asked = {**ASKED, "stop_sequences": ["London", "ris"]}
    if stream:
        with claude.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    assert message.content[0].text == "Pa"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "ris")


def test_system_and_blocks_of_text(claude):
    parts = [{"type": "text", "text": "What is the capital "}, {"type": "text", "text": "of Peru?"}]
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    with_system = ask(claude, system=system)
    assert with_system.usage.input_tokens > 12
    message = ask(claude, messages=[{"role": "user", "content": parts}])
    assert message.content[0].text == "Lima."


def test_conversation_and_continued_answer(claude):
    turns = [
        QUESTION,
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "What is the capital of Japan?"},
    ]
    assert ask(claude, messages=turns).content[0].text == "Tokyo."
    begun = {"role": "assistant", "content": [{"type": "text", "text": "The capital of Italy is"}]}
    assert ask(claude, messages=[QUESTION, begun]).content[0].text == " Rome."


def test_thinking_is_off_unless_asked_for(claude):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = ask(claude, thinking=thinking, max_tokens=8)
    assert message.content[0].type == "thinking"
    assert message.content[0].thinking
    assert len(message.content[0].signature) == 64
    for value in ({"type": "disabled"}, anthropic.omit):
        assert {block.type for block in ask(claude, thinking=value).content} == {"text"}


def test_hidden_thinking(claude):
    thinking = {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}
    message = ask(claude, thinking=thinking, max_tokens=2)
    assert message.content == []
    assert message.stop_reason == "max_tokens"


def test_tools_results_and_thoughts_of_earlier_turns(claude):
    thought = {"type": "thinking", "thinking": "I look it up.", "signature": "x"}
    turns = [
        QUESTION,
        {"role": "assistant", "content": [thought, CALL]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "What is it?"}]},
    ]
    message = ask(claude, messages=turns, tools=[TOOL], tool_choice={"type": "auto"})
    assert message.usage.input_tokens > 100
    without = ask(claude, messages=turns, tools=[TOOL], tool_choice={"type": "none"})
    assert without.usage.input_tokens < message.usage.input_tokens


COUNTRIES = {
    "type": "object",
    "properties": {"country": {"enum": ["France", "Peru"]}, "year": {"type": "integer"}},
    "required": ["country"],
    "additionalProperties": False,
}
TWO_TOOLS = [
    {"name": name, "input_schema": COUNTRIES, "strict": True} for name in ("look_up", "look_down")
]


@pytest.mark.parametrize("stream", [False, True])
def test_forced_call(claude, stream):
    asked = {
        **ASKED,
        "max_tokens": 200,
        "tools": TWO_TOOLS,
        "tool_choice": {"type": "tool", "name": "look_down"},
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    [call] = message.content
    assert (call.type, call.name) == ("tool_use", "look_down")
    assert call.input["country"] in ("France", "Peru")
    assert message.stop_reason == "tool_use"
    answer = {"type": "tool_result", "tool_use_id": call.id, "content": "Paris"}
    turns = [
        QUESTION,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [answer]},
    ]
    assert ask(claude, messages=turns, tools=TWO_TOOLS).role == "assistant"


def test_any_tool_once(claude):
    choice = {"type": "any", "disable_parallel_tool_use": True}
    message = ask(claude, tools=TWO_TOOLS, tool_choice=choice, max_tokens=200)
    assert [block.type for block in message.content] == ["tool_use"]
    assert message.stop_reason == "tool_use"


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_json_by_a_schema(claude, place):
    form = {"type": "json_schema", "schema": COUNTRIES}
    extra = {"temperature": 0, place: {"format": form} if place == "output_config" else form}
    message = ask(claude, extra_body=extra, max_tokens=800)
    [answer] = message.content
    assert json.loads(answer.text)["country"] in ("France", "Peru")
    assert message.stop_reason == "end_turn"


def test_with_tools_calls_may_come_in_place_of_json(claude):
    output = {"format": {"type": "json_schema", "schema": COUNTRIES}}
    one = {"type": "auto", "disable_parallel_tool_use": True}
    message = ask(claude, output_config=output, tools=TWO_TOOLS, tool_choice=one, max_tokens=800)
    assert [block.type for block in message.content] == ["tool_use"]
    assert message.stop_reason == "tool_use"


def test_no_json_before_its_thought_has_ended(claude):
    output = {"format": {"type": "json_schema", "schema": COUNTRIES}}
    message = ask(claude, output_config=output, thinking={"type": "adaptive"})
    assert [block.type for block in message.content] == ["thinking"]
    assert message.stop_reason == "max_tokens"


def test_models(claude):
    page = claude.models.list()
    assert [one.id for one in page] == [MODEL]
    assert page.has_more is False
    model = claude.models.retrieve(MODEL)
    assert (model.type, model.display_name) == ("model", MODEL)
    assert model.created_at.year >= 2026


def test_counted_tokens(claude):
    assert claude.messages.count_tokens(model=MODEL, messages=[QUESTION]).input_tokens == 12
    counted = claude.messages.count_tokens(
        model=MODEL, messages=[QUESTION], tools=[TOOL], system="Be brief."
    )
    message = ask(claude, tools=[TOOL], system="Be brief.")
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_prefix_of_an_earlier_request_is_counted_apart(claude):
    text = "What is the capital of Spain? " * 8
    messages = [{"role": "user", "content": text}]
    first, second = (ask(claude, messages=messages).usage for _ in range(2))
    assert second.cache_read_input_tokens > first.cache_read_input_tokens
    assert sum_of_prompt(first) == sum_of_prompt(second)


def sum_of_prompt(usage):
    return usage.input_tokens + usage.cache_read_input_tokens


def test_more_tokens_than_the_context_has_may_be_asked_for(claude):
    message = ask(claude, max_tokens=10**6)
    assert (message.content[0].text, message.stop_reason) == ("Paris.", "end_turn")


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"model": "other"}, anthropic.NotFoundError, "the model 'other' does not exist"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "max_tokens"),
        ({"messages": []}, anthropic.BadRequestError, "messages"),
        ({"extra_body": {"temperature": 3}}, anthropic.BadRequestError, "temperature"),
        ({"tool_choice": {"type": "any"}}, anthropic.BadRequestError, "at least one tool"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}},
            anthropic.BadRequestError,
            "no tool is named 'other'; the tools are: look_up",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}},
            anthropic.BadRequestError,
            "output_config.format.schema",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            anthropic.BadRequestError,
            "block 0 has type 'image'; supported types: text, tool_result",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": {}, "text": "x"}]}]},
            anthropic.BadRequestError,
            "block 0 has type {}",
        ),
        (
            {"messages": [{"role": "user", "content": [RESULT]}]},
            anthropic.BadRequestError,
            "tool_use_id 'toolu_1' does not match any tool_use block",
        ),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            anthropic.BadRequestError,
            "'web_search_20250305' is not supported",
        ),
        (
            {"messages": [QUESTION, {"role": "assistant", "content": [CALL]}]},
            anthropic.BadRequestError,
            "expected only text blocks",
        ),
        (
            {"messages": [{"role": "user", "content": "word " * 9000}]},
            anthropic.BadRequestError,
            "prompt is too long",
        ),
    ],
)
def test_errors(claude, changes, kind, message):
    with pytest.raises(kind) as caught:
        ask(claude, **changes)
    body = caught.value.body
    assert body["type"] == "error"
    assert message in body["error"]["message"]
    expected = "not_found_error" if kind is anthropic.NotFoundError else "invalid_request_error"
    assert body["error"]["type"] == expected


def test_max_tokens_is_required(server):
    answer = server.http.post("/v1/messages", json={"model": MODEL, "messages": [QUESTION]})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["message"].startswith("max_tokens")


def test_broken_json(server):
    headers = {"content-type": "application/json"}
    answer = server.http.post("/v1/messages", content=b'{"model"', headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (400, "error")
