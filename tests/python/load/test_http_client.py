"""One answer of bytes that are written here, and the requests that it is an answer to."""

import contextlib
import json
import socket
import threading

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.load.http_client import parse_address
from glm_engine.load.processes import run_asks
from glm_engine.load.server_metrics import read_counters
from glm_engine.load.sse import MOST_BODY
from glm_engine.load.target import (
    ServerError,
    Target,
    ask_server,
    chosen_model,
    served_vocabulary,
)
from glm_engine.load.workload import Ask

EVENTS = b'data: {"choices":[{"text":"a"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
END = b"data: [DONE]\n\n"
SEEN = []


@pytest.fixture
def answering():
    """Start a server that gives one answer to one connection and closes it; returns its URL."""
    threads = []

    def start(answer, host="127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((host, 0))
        listener.listen()
        SEEN.clear()
        threads.append(threading.Thread(target=answer_once, args=(listener, answer)))
        threads[-1].start()
        port = listener.getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    yield start
    for thread in threads:
        thread.join(60)


def answer_once(listener, answer):
    listener.settimeout(60)
    with listener, listener.accept()[0] as connection:
        connection.settimeout(60)
        SEEN.append(connection.recv(65536))
        with contextlib.suppress(ConnectionError):
            connection.sendall(answer)


def outcome_of(url, **kind):
    target = Target(parse_address(url), "m", "completions", **kind)
    [outcome] = run_asks(target, [Ask(0.0, [1], 1)], None, 60)
    return outcome.records[0]


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_a_body_may_end_with_its_connection(answering, head):
    record = outcome_of(answering(head + EVENTS + USAGE + END))
    assert (record.outcome, record.num_events, record.completion_tokens) == ("200", 1, 1)
    record = outcome_of(answering(head + EVENTS))
    assert (record.outcome, record.message) == ("cut off", "the stream ended without [DONE]")
    record = outcome_of(answering(head + USAGE.removeprefix(b"data: ")), is_streaming=False)
    assert (record.outcome, record.completion_tokens) == ("200", 1)


@pytest.mark.parametrize(
    "length",
    [b"Content-Length: 999\r\n", b"Transfer-Encoding: Chunked\r\n", b"content-length:9999"],
)
def test_a_body_with_a_length_may_not(answering, length):
    head = b"HTTP/1.1 200 OK\r\n" + length.rstrip() + b"\r\n\r\n"
    record = outcome_of(answering(head + b"40\r\n" + EVENTS))
    assert record.outcome == "connection lost"


def test_a_refusal_may_end_with_its_connection(answering):
    url = answering(b'HTTP/1.0 503 Busy\r\n\r\n{"error": {"message": "later"}}')
    assert ask_server(parse_address(url), "GET", "/v1/models")[0] == 503


def test_addresses_of_ipv6_have_brackets(answering):
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    try:
        url = answering(answer, "::1")
    except OSError:
        pytest.skip("no IPv6 here")
    assert ask_server(parse_address(url), "GET", "/v1/models") == (200, b"{}")
    assert f"Host: {url.removeprefix('http://')}\r\n".encode() in SEEN[0]


@pytest.mark.parametrize("host", ["a..b", ".x", f"{'a' * 70}.b"])
def test_host_names_that_are_none(host):
    with pytest.raises(BadInputError, match="invalid URL"):
        parse_address(f"http://{host}:80")


def test_a_host_name_is_sent_in_ascii():
    message = parse_address("http://b\u00fccher.invalid").message("GET", "/v1/models")
    assert b"Host: xn--bcher-kva.invalid:80\r\n" in message


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "headers": (HEAD + b"x: y\r\n" * 500_000, "outside a body"),
    "a header": (HEAD + b"x: " + b"y" * 3_000_000, "outside a body"),
    "a status line": (b"HTTP/1.1 200 " + b"y" * 3_000_000, "outside a body"),
    "a line": (
        HEAD + b"\r\ndata: " + b"y" * 3_000_000,
        "the stream has more than 1048576",
    ),
    "events": (HEAD + b"\r\n" + EVENTS * 50_000, "more than 1040 events"),
    "trailers": (
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n" + b"x: y\r\n" * 500_000,
        "outside a body",
    ),
}


@pytest.mark.parametrize(("answer", "reason"), ENDLESS.values(), ids=ENDLESS)
def test_what_a_hostile_server_sends_is_bounded(answering, answer, reason):
    record = outcome_of(answering(answer))
    assert record.outcome == "connection lost"
    assert reason in record.message


def test_bodies_of_a_hostile_server_are_bounded(answering):
    body = HEAD + b"\r\n" + b"y" * (MOST_BODY + 1)
    record = outcome_of(answering(body), is_streaming=False)
    reason = "the answer has more than 16777216 bytes"
    assert (record.outcome, record.message) == ("connection lost", reason)
    with pytest.raises(ServerError, match=reason):
        ask_server(parse_address(answering(body)), "GET", "/v1/models")


def test_of_a_refusal_only_the_beginning_is_kept(answering):
    url = answering(b"HTTP/1.0 503 Busy\r\n\r\n" + b"y" * 200_000)
    assert ask_server(parse_address(url), "GET", "/v1/models") == (503, b"y" * 4096)


def test_an_answer_behind_the_answer_is_not_read(answering):
    one = HEAD + b"Content-Length: 2\r\n\r\n{}"
    assert ask_server(parse_address(answering(one * 3)), "GET", "/v1/models") == (200, b"{}")


def json_answer(value):
    body = json.dumps(value).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def test_names_that_no_model_has_are_not_taken(answering):
    names = ["x" * 9999, "\x1b[2J", "fine"]
    url = answering(json_answer({"data": [{"id": name} for name in names]}))
    assert chosen_model(parse_address(url)) == "fine"


@pytest.mark.parametrize("tokens", [[1] * 100_000, [], [-1], [2**40], [1.5], "ab"])
def test_tokens_that_are_none_of_the_text_are_refused(answering, tokens):
    url = answering(json_answer({"tokens": tokens}))
    with pytest.raises(ServerError, match=r"/tokenize: expected (1 to \d+ tokens for|token)"):
        served_vocabulary(parse_address(url), "m", "completions")


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1e999"])
def test_counters_that_are_no_numbers_are_left_out(answering, value):
    lines = f"glm_steps_total {value}\nother_total 1\nglm_evictions_total 3\n".encode()
    url = answering(HEAD + b"\r\n" + lines)
    assert read_counters(parse_address(url)) == {"glm_evictions_total": 3.0}


def test_counters_in_no_form_are_none(answering):
    url = answering(HEAD + b'\r\nglm_steps_total{a="b", ="d"} 1\n')
    assert read_counters(parse_address(url)) == {}


def test_a_server_that_hangs_up_has_no_counters(answering):
    assert read_counters(parse_address(answering(b""))) == {}
