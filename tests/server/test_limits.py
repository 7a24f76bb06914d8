"""Clients that send too much, too slowly or nothing, and readers that stall."""

import socket
import time

import httpx
import pytest

from glm_engine.server.server_settings import FREE_BODY_BYTES, Settings
from tests.server.raw import (
    JSON,
    SMALL_BUFFER,
    connect,
    head,
    post,
    read_all,
    read_until,
    send_half_a_body,
)
from tests.server.serving import ENDLESS, PATIENCE_SECONDS, QUESTION, ServerProcess

COMPLETIONS = "/v1/completions"
MEBIBYTE = 1024 * 1024
MAX_BATCH = 64
WHOLE = {**ENDLESS, "stream": False}
GONE = '"status":499'
READY = head("/readyz", method="GET")


@pytest.fixture(scope="module")
def strict(tmp_path_factory, endless_model):
    """A server with short patience and long answers."""
    running = ServerProcess(
        tmp_path_factory.mktemp("strict"),
        *endless_model,
        *("--header-timeout", 0.5, "--body-timeout", 0.5, "--write-timeout", 0.5),
        *("--keep-alive-comments", 0.5, "--max-batch", MAX_BATCH),
    )
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


def works(server):
    """Say whether a question is answered; what a slow machine sent too late is asked again."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            answer = httpx.post(f"{server.url}{COMPLETIONS}", json={"prompt": QUESTION}, timeout=60)
        except httpx.TransportError:
            continue
        if answer.status_code != 408:
            return answer.json()["choices"][0]["text"] == " Paris."
    return False


def test_a_body_of_more_than_32_mebibytes(server) -> None:
    answer = server.http.post(COMPLETIONS, json={"prompt": "x" * 32 * MEBIBYTE})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert works(server)


def test_a_long_body_without_a_stated_length(server) -> None:
    pieces = (b"x" * 65536 for _ in range(513))
    headers = {"content-type": "application/json"}
    answer = server.http.post(COMPLETIONS, content=pieces, headers=headers)
    assert answer.status_code == 413
    assert works(server)


@pytest.mark.parametrize("digits", ["0" * 5000 + "2", "9" * 5000, "0" * 19 + "2"])
def test_a_length_of_many_digits(server, digits) -> None:
    with connect(server) as connection:
        connection.sendall(head(COMPLETIONS, JSON, f"content-length: {digits}") + b"{}")
        answer = read_until(connection, b"}}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"code":"invalid_http"' in answer
    assert "Traceback" not in server.log()


def test_headers_without_an_end(server) -> None:
    with connect(server) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\n")
        try:
            for number in range(20):
                connection.sendall(b"x-%d: " % number + b"y" * 8192 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")
    assert works(server)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/compl", b"POST / HTTP/1.1\r\nhost: x\r\n"])
def test_half_open_connections_are_closed(strict, sent) -> None:
    began = time.monotonic()
    with connect(strict) as connection:
        connection.sendall(sent)
        assert read_all(connection) == b""
    assert 0.3 < time.monotonic() - began < Settings.header_seconds


def test_bytes_between_requests_do_not_hold_a_connection(strict) -> None:
    with connect(strict) as connection:
        connection.sendall(head("/readyz", method="GET"))
        read_until(connection, b"}")
        connection.sendall(b"\r\n")
        assert read_all(connection) == b""


def test_a_body_that_does_not_come(strict) -> None:
    with connect(strict) as connection:
        send_half_a_body(connection, COMPLETIONS)
        assert read_until(connection, b"}}").startswith(b"HTTP/1.1 408 ")
    assert works(strict)


def test_a_client_that_goes_within_its_body(server) -> None:
    before = server.log().count(GONE)
    with connect(server) as connection:
        send_half_a_body(connection, COMPLETIONS)
    server.wait_for_log(GONE, before + 1)
    assert works(server)


def test_what_is_no_http(server) -> None:
    with connect(server) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")
    assert works(server)


def test_a_reader_that_stalls_is_broken_off(strict) -> None:
    before = strict.log().count(GONE)
    with connect(strict, receive_buffer=SMALL_BUFFER) as connection:
        connection.sendall(post(COMPLETIONS, {**ENDLESS, "logprobs": 20, "n": 4}))
        read_until(connection, b"data: ")
        assert works(strict)
        strict.wait_for_log(GONE, before + 1)
    strict.wait_until_idle()


def test_a_stream_that_waits_carries_comments(strict) -> None:
    others = [connect(strict) for _ in range(2)]
    for one in others:
        one.sendall(post(COMPLETIONS, {**WHOLE, "n": MAX_BATCH // 2}))
    strict.wait_for_gauges(live_requests=MAX_BATCH)
    with connect(strict) as connection:
        connection.sendall(post(COMPLETIONS, {**ENDLESS, "max_tokens": 1, "prompt": [300]}))
        read_until(connection, b": keep-alive\n\n")
    for one in others:
        one.close()
    strict.wait_until_idle()


@pytest.mark.parametrize("fields", [ENDLESS, WHOLE, {**ENDLESS, "n": 8}])
def test_a_client_that_goes_leaves_nothing(strict, fields) -> None:
    with connect(strict) as connection:
        connection.sendall(post(COMPLETIONS, fields))
        strict.wait_for_gauges(live_requests=fields.get("n", 1))
    strict.wait_until_idle()


@pytest.mark.parametrize("fields", [ENDLESS, WHOLE])
@pytest.mark.parametrize("behind", [READY, post(COMPLETIONS, WHOLE)])
def test_a_client_that_goes_leaves_nothing_with_requests_behind_it(strict, fields, behind) -> None:
    before = strict.log().count(GONE)
    with connect(strict) as connection:
        connection.sendall(post(COMPLETIONS, fields) + behind)
        strict.wait_for_gauges(live_requests=1)
    strict.wait_for_log(GONE, before + 1)
    strict.wait_until_idle()


def test_what_waits_behind_a_request_is_bounded(strict) -> None:
    large = post(COMPLETIONS, {"prompt": "x" * 2 * FREE_BODY_BYTES})
    with connect(strict) as connection:
        connection.sendall(post(COMPLETIONS, WHOLE) + large)
        assert read_all(connection)[:12] in (b"HTTP/1.1 400", b"")
    strict.wait_until_idle()


def test_a_client_that_resets_leaves_nothing(strict) -> None:
    connection = connect(strict)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.sendall(post(COMPLETIONS, ENDLESS))
    strict.wait_for_gauges(live_requests=1)
    connection.close()
    strict.wait_until_idle()
