"""Clients that send too much, too slowly or nothing, and readers that stall."""

import socket
import time

import pytest

from tests.server.raw import SMALL_BUFFER, connect, head, post, read_all, read_until
from tests.server.serving import QUESTION

COMPLETIONS = "/v1/completions"
JSON = "content-type: application/json"
MEBIBYTE = 1024 * 1024
LONG = {"prompt": QUESTION, "stream": True, "ignore_eos": True, "max_tokens": 4000}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A server with short patience."""
    from tests.server.serving import ServerProcess

    running = ServerProcess(
        tmp_path_factory.mktemp("strict"),
        *("--header-timeout", 0.5, "--body-timeout", 0.5, "--write-timeout", 0.5),
        *("--keep-alive-comments", 0.5),
    )
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


def works(server):
    answer = server.http.post(COMPLETIONS, json={"prompt": QUESTION})
    return answer.json()["choices"][0]["text"] == " Paris."


def test_a_body_of_ten_megabytes(server) -> None:
    answer = server.http.post(COMPLETIONS, json={"prompt": "x" * 10 * MEBIBYTE})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    assert works(server)


def test_a_long_body_without_a_stated_length(server) -> None:
    pieces = (b"x" * 65536 for _ in range(160))
    headers = {"content-type": "application/json"}
    answer = server.http.post(COMPLETIONS, content=pieces, headers=headers)
    assert answer.status_code == 413
    assert works(server)


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
    assert 0.3 < time.monotonic() - began < 10


def test_a_body_that_does_not_come(strict) -> None:
    with connect(strict) as connection:
        connection.sendall(head(COMPLETIONS, JSON, "content-length: 100") + b"{")
        assert read_until(connection, b"}}").startswith(b"HTTP/1.1 408 ")
    assert works(strict)


def test_a_client_that_goes_within_its_body(strict) -> None:
    before = strict.log().count('"status":499')
    with connect(strict) as connection:
        connection.sendall(head(COMPLETIONS, JSON, "content-length: 100") + b"{")
    until = time.monotonic() + 5
    while strict.log().count('"status":499') == before:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert works(strict)


def test_what_is_no_http(server) -> None:
    with connect(server) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")
    assert works(server)


def test_a_reader_that_stalls_is_broken_off(strict) -> None:
    fields = {**LONG, "logprobs": 20, "n": 4}
    with connect(strict, receive_buffer=SMALL_BUFFER) as connection:
        connection.sendall(post(COMPLETIONS, fields))
        strict.wait_for_gauges(live_requests=4)
        assert works(strict)
        strict.wait_for_gauges(seconds=60, live_requests=0, open_streams=0)
    strict.wait_until_idle()
    assert '"status":499' in strict.log()


def test_a_stream_that_waits_carries_comments(strict) -> None:
    fields = {**LONG, "max_tokens": 1, "prompt": [300]}
    others = [connect(strict) for _ in range(2)]
    for one in others:
        one.sendall(post(COMPLETIONS, {**LONG, "n": 32}))
    strict.wait_for_gauges(live_requests=64)
    with connect(strict) as connection:
        connection.sendall(post(COMPLETIONS, fields))
        assert b": keep-alive\n\n" in read_until(connection, b": keep-alive\n\n")
    for one in others:
        one.close()
    strict.wait_until_idle()


@pytest.mark.parametrize("fields", [LONG, {**LONG, "stream": False}, {**LONG, "n": 8}])
def test_a_client_that_goes_leaves_nothing(server, fields) -> None:
    wanted = fields.get("n", 1)
    with connect(server) as connection:
        connection.sendall(post(COMPLETIONS, fields))
        server.wait_for_gauges(live_requests=wanted)
    server.wait_for_gauges(seconds=2, live_requests=0, open_streams=0)
    server.wait_until_idle()


def test_a_client_that_resets_leaves_nothing(server) -> None:
    connection = connect(server)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.sendall(post(COMPLETIONS, LONG))
    server.wait_for_gauges(live_requests=1)
    connection.close()
    server.wait_until_idle()
