"""One answer of bytes that are written here, and the requests that it is an answer to."""

import socket
import threading

import pytest

from glm_engine.errors import BadInputError
from glm_engine.load.connection import parse_address
from glm_engine.load.processes import run_asks
from glm_engine.load.target import Target, ask_server
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
    with pytest.raises(BadInputError, match="is no URL"):
        parse_address(f"http://{host}:80")


def test_a_host_name_is_sent_in_ascii():
    message = parse_address("http://b\u00fccher.invalid").message("GET", "/v1/models")
    assert b"Host: xn--bcher-kva.invalid:80\r\n" in message
