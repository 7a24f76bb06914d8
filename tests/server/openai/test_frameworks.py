"""Bodies in the form that popular clients put on the wire, and that each is understood."""

import json

import pytest

from tests.server.serving import MODEL

QUESTION = "What is the capital of France?"
ASKED = {"role": "user", "content": QUESTION}
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Lima"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city", "parameters": SCHEMA},
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city":"Paris"}'},
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def form(**more):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, **more}}


PLAIN = {
    "LangChain": {
        "messages": [{"content": QUESTION, "role": "user"}],
        "temperature": 0.0,
        "stream": False,
        "max_completion_tokens": 64,
        "n": 1,
    },
    "LiteLLM and aider": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "", "cache_control": {}}]},
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        ],
        "temperature": 0,
        "tools": None,
        "thinking": {"type": "disabled", "budget_tokens": 0},
    },
    "AI SDK": {
        "messages": [ASKED],
        "max_tokens": 64,
        "temperature": 0,
        "top_p": 1,
        "stop": [],
        "verbosity": "medium",
        **STREAM,
    },
    "Zed": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}],
        "stop": [],
        "max_completion_tokens": 64,
        "prompt_cache_key": "x",
        "temperature": 0,
        "tools": [],
        "parallel_tool_calls": None,
        "reasoning_effort": None,
        **STREAM,
    },
    "Open WebUI": {
        "messages": [ASKED],
        "user": {"name": "a", "id": "1", "email": "a@b", "role": "user"},
        "metadata": {},
        "temperature": 0,
        "top_k": 40.0,
        "seed": 1.0,
        **STREAM,
    },
    "vllm-router": {
        "messages": [ASKED],
        "temperature": 0.0,
        "stream": False,
        "logprobs": False,
        "no_stop_trim": False,
        "ignore_eos": False,
        "continue_final_message": False,
        "skip_special_tokens": True,
        "separate_reasoning": True,
        "stream_reasoning": True,
        "return_hidden_states": False,
        "include_reasoning": True,
    },
    "a client of nulls": {
        "messages": [{**ASKED, "name": None, "tool_calls": None, "function_call": None}],
        **dict.fromkeys(("n", "user", "functions", "logit_bias", "best_of", "audio", "grounding")),
        **dict.fromkeys(("tool_choice", "stop", "stream", "logprobs", "max_tokens", "seed")),
        "temperature": 0,
        "top_logprobs": 0,
        "response_format": {"type": "text"},
    },
}

HISTORIES = {
    "LangChain": [{"content": None, "role": "assistant", "tool_calls": [CALL]}, RESULT],
    "LangChain's lists": [
        {"content": "", "role": "assistant", "tool_calls": [CALL]},
        {**RESULT, "name": "weather", "content": [{"type": "text", "text": "sunny"}]},
    ],
    "LiteLLM": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**CALL, "index": 0}],
            "function_call": None,
            "provider_specific_fields": {"refusal": None},
            "annotations": [],
            "audio": None,
            "thinking_blocks": [],
        },
        {**RESULT, "name": "weather"},
    ],
    "AI SDK": [
        {"role": "assistant", "content": "", "tool_calls": [{**CALL, "extra_content": {}}]},
        RESULT,
    ],
    "Codex": [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {**RESULT, "content": [{"type": "text", "text": "sun"}, {"type": "text", "text": "ny"}]},
    ],
    "the official client": [
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]},
        RESULT,
    ],
    "functions": [
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
        {"role": "function", "name": "weather", "content": "sunny"},
    ],
}

CALLING = {
    "LangChain": {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
    "instructor": {
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
    },
    "pydantic-ai": {"tool_choice": "required", "parallel_tool_calls": False},
    "agents with a form": {
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "response_format": form(strict=True),
    },
}

FORMS = {
    "LangChain": {"response_format": form(strict=True)},
    "AI SDK": {"response_format": form(description="The answer.")},
    "openai-agents": {"response_format": form(strict=True), "store": None, "metadata": None},
    "vLLM": {"guided_json": SCHEMA, "response_format": None},
}


def ask(server, **fields):
    answer = server.http.post("/v1/chat/completions", json={"model": MODEL, **fields})
    assert answer.status_code == 200, answer.text
    return answer


def events_of(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def text_of(answer):
    if answer.headers["content-type"] == "application/json":
        return answer.json()["choices"][0]["message"]["content"]
    deltas = [choice["delta"] for event in events_of(answer) for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("name", PLAIN)
def test_questions(server, name) -> None:
    assert text_of(ask(server, **PLAIN[name])) == "Paris."


def num_prompt_tokens(server, messages):
    fields = {"messages": messages, "tools": [TOOL], "max_tokens": 1}
    return ask(server, **fields).json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("name", HISTORIES)
def test_calls_and_results_of_earlier_turns_are_the_same_prompt(server, name) -> None:
    expected = num_prompt_tokens(server, [ASKED, *HISTORIES["LangChain"]])
    assert expected > num_prompt_tokens(server, [ASKED, RESULT])
    assert num_prompt_tokens(server, [ASKED, *HISTORIES[name]]) == expected


@pytest.mark.parametrize("name", CALLING)
def test_calls_that_are_asked_for(server, name) -> None:
    fields = {"messages": [ASKED], "tools": [TOOL], "max_tokens": 100, **CALLING[name]}
    choice = ask(server, **fields).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Lima")


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_answers(server, name) -> None:
    content = text_of(ask(server, messages=[ASKED], max_tokens=100, **FORMS[name]))
    assert json.loads(content)["city"] in ("Paris", "Lima")


def test_tools_that_stream_as_the_ai_sdk_reads_them(server) -> None:
    fields = {"messages": [ASKED], "tools": [TOOL], "tool_choice": "required", "max_tokens": 100}
    events = events_of(ask(server, **fields, **STREAM))
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] > 0
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert calls
    for index in {call["index"] for call in calls}:
        first, *rest = [call for call in calls if call["index"] == index]
        assert first["id"]
        assert first["function"]["name"] == "weather"
        assert all(call.keys() == {"index", "function"} for call in rest)
        json.loads("".join(call["function"]["arguments"] for call in [first, *rest]))


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": "data:"}}, "image_url"),
        ({"type": "input_audio", "input_audio": {"data": ""}}, "input_audio"),
        ({"type": "file", "file": {"file_id": "1"}}, "file"),
    ],
)
def test_what_a_text_model_cannot_read_is_refused_by_name(server, part, named) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}]
    answer = server.http.post("/v1/chat/completions", json={"model": MODEL, "messages": messages})
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["param"].startswith("messages.0.content")
    assert f"'{named}'" in error["message"]
