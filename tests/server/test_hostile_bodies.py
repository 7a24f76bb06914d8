"""Bodies within the size that is taken, made to cost the server far more than they cost to send."""

import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests.server.serving import PATIENCE_SECONDS, QUESTION

COMPLETIONS, CHAT, MESSAGES = "/v1/completions", "/v1/chat/completions", "/v1/messages"
RESPONSES = "/v1/responses"
JSON = {"content-type": "application/json"}
MAX_ANSWER_BYTES = 4096
MAX_STALL_SECONDS = 4
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


OBJECTS = b'{"a":%s' % many(b"{}", 1_000_000)
DEEP = b'{"a":' * 100 + b"0" + b"}" * 100
BODIES = {
    "zeros for parts": (CHAT, chat(many(b"0", 1_500_000)), "messages.0.content", None),
    "zeros for messages": (CHAT, b'{"messages":%s}' % many(b"0", 1_500_000), "messages.0", None),
    "parts": (CHAT, chat(many(b'{"type":"text","text":""}', 5000)), "messages.0.content", None),
    "objects": (CHAT, b'{"messages":%s}' % many(b"{}", 1_000_000), None, "json_too_complex"),
    "keys": (CHAT, keys(200_000), None, "json_too_complex"),
    "unknown keys": (CHAT, keys(4000), "messages", None),
    "zeros for blocks": (MESSAGES, message(many(b"0", 1_500_000)), None, None),
    "negative ids": ("/detokenize", b'{"tokens":%s}' % many(b"-1", 1_000_000), "tokens.0", None),
    "biases": (COMPLETIONS, b'{"prompt":"x","logit_bias":%s}' % keys(4000), "logit_bias", None),
    "stops": (COMPLETIONS, b'{"prompt":"x","stop":%s}' % many(b'"a"', 900_000), "stop", None),
    "choices": (
        COMPLETIONS,
        b'{"guided_choice":%s}' % many(b"1", 1_900_000),
        "guided_choice.0",
        None,
    ),
    "arguments": (CHAT, calls(OBJECTS + b"}"), None, "json_too_complex"),
    "arguments that were cut": (CHAT, calls(OBJECTS), None, "json_too_complex"),
    "arguments with keys": (CHAT, calls(keys(300_000)), None, "json_too_complex"),
    "arguments of many calls": (CHAT, calls(keys(1000), 256), None, "json_too_complex"),
    "deep arguments": (CHAT, calls(DEEP), None, "json_too_deep"),
    "arguments of an item": (RESPONSES, call_item(OBJECTS + b"}"), None, "json_too_complex"),
    "deep arguments of an item": (RESPONSES, call_item(DEEP), None, "json_too_deep"),
    "a long name": (CHAT, b'{"%s":1}' % (b"k" * 3_000_000), "messages", None),
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
    path, body, param, code = BODIES[name]
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
    assert message.endswith("this server has 'capitals'")


def test_a_conversation_of_many_parts_is_taken(server) -> None:
    parts = [{"type": "text", "text": "a"} for _ in range(4000)]
    fields = {"messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    assert server.http.post(CHAT, json=fields).status_code == 200
