"""Bodies in the form that Claude Code and other clients put on the wire."""

import json

import pytest

from tests.server.serving import MODEL

EPHEMERAL = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"file_path": {"type": "string", "description": "The absolute path"}},
    "required": ["file_path"],
    "additionalProperties": False,
}
READ = {"name": "Read", "description": "Reads a file.", "input_schema": SCHEMA}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/a.png"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
REMINDER = {"type": "text", "text": "<system-reminder>\nBe brief.\n</system-reminder>"}
BETAS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
    "x-app": "cli",
}


def text(value, **more):
    return {"type": "text", "text": value, **more}


def claude_code(mark, **changes):
    """Return a turn of Claude Code, of which `mark` differs in every request."""
    note = f"x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch={mark};"
    return {
        "model": MODEL,
        "messages": [
            {"role": "user", "content": [REMINDER, text("Look at /a.png.", **EPHEMERAL)]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I read it.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "ZW5j"},
                    {**CALL, "caller": {"type": "direct"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": None,
                        "content": [text("See: "), IMAGE],
                        **EPHEMERAL,
                    },
                    text("What is the capital of France?"),
                ],
            },
        ],
        "system": [text(note), text("You are a command line tool. " * 8, **EPHEMERAL)],
        "tools": [READ, {**READ, "name": "Write", "eager_input_streaming": True, **EPHEMERAL}],
        "metadata": {"user_id": "user_1_account__session_1"},
        "max_tokens": 8,
        "temperature": 1,
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
        **changes,
    }


def post(server, body, path="/v1/messages"):
    return server.http.post(f"{path}?beta=true", json=body, headers=BETAS)


def counted(server, **changes):
    body = claude_code("a", **changes)
    for name in ("max_tokens", "temperature", "stream", "metadata"):
        del body[name]
    answer = post(server, body, "/v1/messages/count_tokens")
    assert answer.status_code == 200, answer.text
    return answer.json()["input_tokens"]


def events_of(answer):
    assert answer.status_code == 200, answer.text
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_claude_code_streams(server):
    events = events_of(post(server, claude_code("a", top_k=1)))
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    started = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert started[0]["type"] == "thinking"
    assert len(started) == sum(event["type"] == "content_block_stop" for event in events)


def test_claude_code_finds_its_prefix_again(server):
    first, second = (events_of(post(server, claude_code(mark))) for mark in ("36ee5", "0aaa9"))
    [usage] = [event["usage"] for event in second if event["type"] == "message_delta"]
    assert usage["cache_read_input_tokens"] > 10 * usage["input_tokens"]
    assert sum(usage_of(first)) == sum(usage_of(second)) == counted(server)


def usage_of(events):
    usage = events[0]["message"]["usage"]
    return usage["input_tokens"], usage["cache_read_input_tokens"]


def test_what_the_prompt_holds(server):
    whole = counted(server)
    assert whole > counted(server, tools=[READ]) > counted(server, tools=[]) > 0
    assert whole > counted(server, system=None)
    assert whole > counted(server, messages=claude_code("a")["messages"][:1])


@pytest.mark.parametrize(
    "changes",
    [
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high", "format": None}},
        {"thinking": {"type": "disabled"}, "context_management": None},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": None}},
        {"tools": [], "system": "You write titles.", "thinking": None, "top_k": 1.0},
        {"anthropic_version": "vertex-2023-10-16", "anthropic_beta": ["a"]},
        {"cache_control": {"type": "ephemeral"}, "service_tier": "auto", "mcp_servers": []},
    ],
)
def test_other_turns(server, changes):
    events = events_of(post(server, claude_code("a", **changes)))
    assert events[-1]["type"] == "message_stop"


def test_a_search_that_nobody_can_make_is_refused_by_name(server):
    answer = post(server, claude_code("a", tools=[SEARCH]))
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert "'web_search_20250305' is not supported" in error["message"]


def test_the_ai_sdk(server):
    body = {
        "model": MODEL,
        "max_tokens": 64,
        "temperature": 0,
        "system": [text("")],
        "messages": [{"role": "user", "content": [text("What is the capital of France?")]}],
    }
    answer = server.http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["content"] == [text("Paris.")]
