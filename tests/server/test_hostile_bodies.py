"""Bodies within the size that is taken, made to cost the server far more than they cost to send."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.json_bodies import JsonReader
from glm_engine.server.server_settings import Settings
from tests.server.serving import PATIENCE_SECONDS, QUESTION

COMPLETIONS, CHAT, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/messages"
RESPONSES = "/v1/responses"
JSON = {"content-type": "application/json"}
MAX_ANSWER_BYTES = 4096
MAX_STALL_SECONDS = 0.2
MAX_GROWTH_KIB = 512 * 1024


def many(item, count):
    return b"[" + b",".join([item] * count) + b"]"


def keys(count):
    return b"{" + b",".join(b'"%d":0' % number for number in range(count)) + b"}"


def chat(content):
    return b'{"messages":[{"role":"user","content":%s}]}' % content


def message(content):
    head = b'{"model":"capitals","max_tokens":1,"messages":[{"role":"user","content":'
    return head + content + b"}]}"


def call(arguments):
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def calls(arguments, count=1):
    """A conversation with calls whose arguments are this JSON, which stands in a text."""
    turn = {"role": "assistant", "tool_calls": [call(arguments.decode())] * count}
    return json.dumps({"messages": [{"role": "user", "content": "x"}, turn]}).encode()


def call_item(arguments):
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments.decode()}
    return json.dumps({"input": [{"role": "user", "content": "x"}, item]}).encode()


DEEP = b'{"a":' * 100 + b"0" + b"}" * 100
DEEPEST = b'{"a":%s0%s}' % (b"[" * 30_000, b"]" * 30_000)


def objects():
    return b'{"a":%s' % many(b"{}", 1_000_000)


def lists():
    return many(b"[]", 1_300_000)


def deep_lists():
    return b'{"a":' + b"[" * 188 + lists() + b"]" * 188 + b"}"


BODIES = {
    "zeros for parts": (CHAT, lambda: chat(many(b"0", 1_500_000)), "messages.0.content", None),
    "zeros for messages": (
        CHAT,
        lambda: b'{"messages":%s}' % many(b"0", 1_500_000),
        "messages.0",
        None,
    ),
    "parts": (
        CHAT,
        lambda: chat(many(b'{"type":"text","text":""}', 5000)),
        "messages.0.content",
        None,
    ),
    "objects": (
        CHAT,
        lambda: b'{"messages":%s}' % many(b"{}", 1_000_000),
        None,
        "json_too_complex",
    ),
    "keys": (CHAT, lambda: keys(200_000), None, "json_too_complex"),
    "unknown keys": (CHAT, lambda: keys(4000), "messages", None),
    "zeros for blocks": (MESSAGES, lambda: message(many(b"0", 1_500_000)), None, None),
    "negative ids": (
        "/detokenize",
        lambda: b'{"tokens":%s}' % many(b"-1", 1_000_000),
        "tokens.0",
        None,
    ),
    "biases": (
        COMPLETIONS,
        lambda: b'{"prompt":"x","logit_bias":%s}' % keys(4000),
        "logit_bias",
        None,
    ),
    "stops": (
        COMPLETIONS,
        lambda: b'{"prompt":"x","stop":%s}' % many(b'"a"', 900_000),
        "stop",
        None,
    ),
    "choices": (
        COMPLETIONS,
        lambda: b'{"guided_choice":%s}' % many(b"1", 1_900_000),
        "guided_choice.0",
        None,
    ),
    "lists": (CHAT, lambda: b'{"messages":%s}' % many(b"[]", 10_000_000), None, "json_too_complex"),
    "zeros": (
        COMPLETIONS,
        lambda: b'{"prompt":%s}' % many(b"0", 15_000_000),
        None,
        "json_too_complex",
    ),
    "lists of arguments": (CHAT, lambda: calls(deep_lists()), None, "json_too_complex"),
    "lists of arguments that were cut": (
        CHAT,
        lambda: calls(deep_lists()[:-200]),
        None,
        "json_too_complex",
    ),
    "lists of arguments of items": (
        RESPONSES,
        lambda: call_item(lists()),
        None,
        "json_too_complex",
    ),
    "zeros of arguments": (CHAT, lambda: calls(many(b"0", 3_000_000)), None, "json_too_complex"),
    "deepest arguments": (CHAT, lambda: calls(DEEPEST), None, "json_too_deep"),
    "a schema in a text": (
        COMPLETIONS,
        lambda: json.dumps({"prompt": "x", "guided_json": objects()[:900_000].decode()}).encode(),
        None,
        "json_too_complex",
    ),
    "arguments": (CHAT, lambda: calls(objects() + b"}"), None, "json_too_complex"),
    "arguments that were cut": (CHAT, lambda: calls(objects()), None, "json_too_complex"),
    "arguments with keys": (CHAT, lambda: calls(keys(300_000)), None, "json_too_complex"),
    "arguments of many calls": (CHAT, lambda: calls(keys(1000), 256), None, "json_too_complex"),
    "deep arguments": (CHAT, lambda: calls(DEEP), None, "json_too_deep"),
    "arguments of an item": (
        RESPONSES,
        lambda: call_item(objects() + b"}"),
        None,
        "json_too_complex",
    ),
    "deep arguments of an item": (RESPONSES, lambda: call_item(DEEP), None, "json_too_deep"),
    "a long type": (
        CHAT,
        lambda: chat(b'[{"type":"%s"}]' % (b"k" * 3_000_000)),
        "messages.0.content",
        None,
    ),
    "a long name": (CHAT, lambda: b'{"%s":1}' % (b"k" * 3_000_000), "messages", None),
}


def peak_kib(server):
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def processor_seconds(server):
    return sum(psutil.Process(server.process.pid).cpu_times()[:2])


@contextmanager
def others_are_served(server):
    """Ask for /readyz all the while, and check that no answer waited for much other work.

    What the server computed meanwhile is counted, not the time, which others' work lengthens.
    """
    found, is_over, has_begun = [], threading.Event(), threading.Event()

    def ask():
        with httpx.Client(base_url=server.url, timeout=60) as http:
            while not (found and is_over.is_set()):
                began = processor_seconds(server)
                status = http.get("/readyz").status_code
                found.append((status, processor_seconds(server) - began))
                has_begun.set()
                time.sleep(0.01)

    asker = threading.Thread(target=ask)
    asker.start()
    assert has_begun.wait(PATIENCE_SECONDS)
    try:
        yield
    finally:
        is_over.set()
        asker.join()
    statuses, seconds = zip(*found, strict=True)
    assert set(statuses) == {200}
    assert max(seconds) < MAX_STALL_SECONDS


@pytest.mark.parametrize("name", BODIES)
def test_costly_bodies_are_refused_in_short(server, name) -> None:
    path, make_body, param, code = BODIES[name]
    body = make_body()
    before = peak_kib(server)
    with others_are_served(server):
        answer = server.http.post(path, content=body, headers=JSON)
    assert answer.status_code == 400
    assert len(answer.content) < MAX_ANSWER_BYTES
    error = answer.json()["error"]
    assert (error.get("param"), error.get("code")) == (param, code)
    assert peak_kib(server) - before < MAX_GROWTH_KIB


def test_what_a_client_wrote_comes_back_cut(server) -> None:
    answer = server.http.post(COMPLETIONS, json={"prompt": QUESTION, "model": "m" * 100_000})
    assert answer.status_code == 404
    assert len(answer.content) < MAX_ANSWER_BYTES
    message = answer.json()["error"]["message"]
    assert message.startswith("the model 'mmm")
    assert "mmm [cut] mmm" in message
    assert message.endswith("available models: 'capitals'")


@pytest.mark.parametrize("sign", ["a", "\u00e9", "\n", "\U0001f600"])
def test_long_texts_are_read_and_refused_by_their_length(server, sign) -> None:
    body = json.dumps({"prompt": sign * 8_000_000}, ensure_ascii=False).encode()
    with others_are_served(server):
        answer = server.http.post(COMPLETIONS, content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_the_loop_goes_on_while_bodies_are_read() -> None:
    async def longest_stall(body):
        reading = asyncio.create_task(JsonReader(Settings()).read(body))
        found, before = [], time.process_time()
        while not reading.done():
            await asyncio.sleep(0)
            now = time.process_time()
            found.append(now - before)
            before = now
        with pytest.raises(ApiError) as caught:
            reading.result()
        assert caught.value.code == "json_too_complex"
        return max(found)

    for item in (b"[]", b"0", b'{"a":0}', b'"a"', b'"\\\\"'):
        assert asyncio.run(longest_stall(many(item, 4_000_000))) < MAX_STALL_SECONDS / 2


def test_pictures_of_tools_are_taken_and_left_out(server) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 30 * 2**20}
    picture = {"type": "image", "source": source}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}
    turns = [("user", "x"), ("assistant", [use]), ("user", [result])]
    messages = [{"role": role, "content": content} for role, content in turns]
    fields = {"model": "capitals", "max_tokens": 1, "messages": messages}
    with others_are_served(server):
        answer = server.http.post(MESSAGES, json=fields)
    assert answer.status_code == 200
    del fields["max_tokens"]
    told = server.http.post(f"{MESSAGES}/count_tokens", json=fields).json()["input_tokens"]
    result["content"] = "[image omitted: this model reads text only]"
    assert server.http.post(f"{MESSAGES}/count_tokens", json=fields).json()["input_tokens"] == told


def test_a_conversation_of_many_parts_is_taken(server) -> None:
    parts = [{"type": "text", "text": "a"} for _ in range(4000)]
    fields = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    assert server.http.post(CHAT, json=fields).status_code == 200
