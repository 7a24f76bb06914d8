"""Bodies in the form that Codex, the AI SDK and others put on the wire."""

import json

import pytest

from tests.server.openai.responses.test_responses import post
from tests.server.openai.responses.validation import check_order, read_events, read_response
from tests.server.serving import MODEL

QUESTION = "What is the capital of France?"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Lima"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "weather", "description": "The weather", "parameters": SCHEMA}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAABmZW5j"}
ASKED = {"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}
TYPED = {"type": "message", **ASKED}
AGENTS = {"type": "namespace", "name": "multi_agent_v1", "description": "Agents.", "tools": [TOOL]}
CODEX = {
    "instructions": "You are Codex.",
    "tools": [{**TOOL, "strict": False}, AGENTS],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199",
    "client_metadata": {"x-codex-installation-id": "1"},
    "text": {"verbosity": "low"},
}
BODIES = {
    "Codex": {
        **CODEX,
        "input": [
            {"type": "message", "role": "developer", "content": TYPED["content"]},
            TYPED,
            {**THOUGHT, "content": None},
            {"type": "message", "role": "assistant", "content": [], "phase": "commentary"},
            {**CALL, "id": "fc_1", "namespace": "multi_agent_v1"},
            RESULT,
        ],
    },
    "Codex with lists of results": {
        **CODEX,
        "input": [TYPED, CALL, {**RESULT, "output": [{"type": "input_text", "text": "sunny"}]}],
    },
    "AI SDK": {
        "input": [
            {"role": "system", "content": "Be brief."},
            ASKED,
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look."}],
                "id": "m",
            },
            {**CALL, "id": "fc_1"},
            RESULT,
        ],
        "tools": [{**TOOL, "strict": False}],
        "tool_choice": "auto",
        "temperature": 0,
        "store": False,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 20,
        "stream": True,
    },
    "openai-agents": {
        "instructions": None,
        "input": [{"content": QUESTION, "role": "user"}, THOUGHT, CALL, RESULT],
        "tools": [{**TOOL, "strict": True}],
        "include": [],
        "parallel_tool_calls": False,
        "stream": False,
    },
    "LangChain": {
        "input": [
            {"type": "message", "role": "user", "content": QUESTION},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hm.", "annotations": []}],
                "id": "msg_1",
            },
            CALL,
            RESULT,
        ],
        "tools": [{**TOOL, "strict": None}],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
}


@pytest.mark.parametrize("name", BODIES)
def test_turns_with_calls_and_results(server, name):
    text = post(server, **{"max_output_tokens": 30, **BODIES[name]})
    if BODIES[name]["stream"]:
        events = read_events(text)
        check_order(events)
        response = events[-1].response
    else:
        response = read_response(text)
    assert response.usage.input_tokens > 60
    assert response.model == MODEL


def test_the_schema_that_codex_asks_for(server):
    form = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": SCHEMA}
    fields = {**CODEX, "tools": [], "input": [TYPED], "text": {"format": form, "verbosity": "low"}}
    response = read_events(post(server, **fields))[-1].response
    assert json.loads(response.output_text)["city"] in ("Paris", "Lima")


def test_calls_that_the_ai_sdk_reads(server):
    named = {"type": "function", "name": "weather"}
    fields = {"input": [ASKED], "tools": [TOOL], "tool_choice": named, "stream": True}
    lines = post(server, **fields).splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data")]
    [added] = [event for event in events if event["type"] == "response.output_item.added"]
    [done] = [event for event in events if event["type"] == "response.output_item.done"]
    assert added["item"]["arguments"] == ""
    assert done["item"]["status"] == "completed"
    assert json.loads(done["item"]["arguments"])["city"] in ("Paris", "Lima")
    assert events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


def test_the_ai_sdk_is_told_why_it_must_not_store(server):
    given = [ASKED, {"type": "item_reference", "id": "msg_1"}, ASKED]
    answer = server.http.post("/v1/responses", json={"model": MODEL, "input": given})
    assert answer.status_code == 400
    assert "item 1 is an item_reference" in answer.json()["error"]["message"]
