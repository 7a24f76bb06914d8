"""What Claude Code, Codex and opencode put on the wire, recorded from their published packages.

`data/agents.json` holds, for each client and interface, its tools and the bodies of one session in
which it reads a file, runs a command and edits. All text in them is replaced and all lengths are
cut; fields, order and schemas are the clients' own.
"""

import json
import re
from pathlib import Path

import pytest
from openai.types.chat import ChatCompletionChunk

from tests.server.openai.responses.validation import check_order, read_events

RECORDED = json.loads((Path(__file__).parent / "data" / "agents.json").read_bytes())
BODIES = [(name, at) for name, client in RECORDED.items() for at in range(len(client["bodies"]))]
SESSIONS = [name for name, client in RECORDED.items() if "tools" in client["bodies"][-1]]
MOST_TOKENS = 32
MESSAGE_EVENTS = re.compile(
    r"message_start (content_block_start (content_block_delta )*content_block_stop )*"
    r"message_delta message_stop"
)


def replay(server, name, at):
    """Send a body as its client did; where it bounds no answer, this one is short all the same."""
    client = RECORDED[name]
    body = dict(client["bodies"][at])
    if body.get("tools"):
        body["tools"] = client["tools"]
    if client["path"] == "/v1/responses":
        body.setdefault("max_output_tokens", MOST_TOKENS)
    answer = server.http.post(client["path"], json=body, headers=client["headers"])
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return answer.text


def data_of(text):
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def check_messages(text):
    """Check the order of the events, and return tokens of the prompt, those taken over."""
    events = [json.loads(one) for one in data_of(text)]
    events = [event for event in events if event["type"] != "ping"]
    assert MESSAGE_EVENTS.fullmatch(" ".join(event["type"] for event in events))
    starts = [event["index"] for event in events if event["type"] == "content_block_start"]
    assert starts == list(range(len(starts)))
    usage = events[-2]["usage"]
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + cached, cached


def check_responses(text):
    events = read_events(text)
    check_order(events)
    usage = events[-1].response.usage
    return usage.input_tokens, usage.input_tokens_details.cached_tokens


def check_chat(text):
    *lines, end = data_of(text)
    assert end == "[DONE]"
    *chunks, last = [ChatCompletionChunk.model_validate_json(line, strict=True) for line in lines]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert choices[0].delta.role == "assistant"
    *before, ended = [choice.finish_reason for choice in choices]
    assert ended in ("stop", "length")
    assert not any(before)
    assert last.choices == []
    return last.usage.prompt_tokens, last.usage.prompt_tokens_details.cached_tokens


CHECKS = {
    "/v1/messages": check_messages,
    "/v1/messages?beta=true": check_messages,
    "/v1/responses": check_responses,
    "/v1/chat/completions": check_chat,
}


@pytest.mark.parametrize(("name", "at"), BODIES)
def test_a_recorded_body_is_taken_and_its_events_are_in_order(endless_server, name, at) -> None:
    num_prompt, _ = CHECKS[RECORDED[name]["path"]](replay(endless_server, name, at))
    assert num_prompt > 0


@pytest.mark.parametrize("name", SESSIONS)
def test_a_later_turn_of_a_session_finds_the_first(endless_server, name) -> None:
    """Nothing that a client changes from turn to turn stands before what it keeps."""
    check = CHECKS[RECORDED[name]["path"]]
    first, _ = check(replay(endless_server, name, -2))
    _, cached = check(replay(endless_server, name, -1))
    assert cached > 0.9 * first
