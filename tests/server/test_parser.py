"""Requests that ask for another protocol get the answer that they would get without asking."""

import json
import re

import httptools
import pytest

from glm_engine.server.http.protocol import Http1Parser
from glm_engine.server.server_settings import MAX_HEADERS, Settings
from tests.server.raw import connect, head, post, read_all, read_until
from tests.server.serving import QUESTION
from tests.server.test_drain import status_of

COMPLETIONS = "/v1/completions"
JSON = "content-type: application/json"
TO_HTTP2 = (
    "connection: Upgrade, HTTP2-Settings",
    "upgrade: h2c",
    "http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
)
TO_WEBSOCKET = (
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)
FIELDS = {"prompt": QUESTION, "max_tokens": 2}
CHUNK = 9
WHOLE = 65536
IDENTITY = re.compile(rb"\r\nx-request-id: (\w+)\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n")


def chunked(path, *lines):
    body = json.dumps(FIELDS).encode()
    pieces = [body[at : at + CHUNK] for at in range(0, len(body), CHUNK)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head(path, JSON, "transfer-encoding: chunked", *lines) + chunks + b"0\r\n\r\n"


def requests(*lines):
    """Return requests with every kind of body, each with these headers too."""
    return [
        post(COMPLETIONS, FIELDS, *lines),
        head("/readyz", *lines, method="GET"),
        chunked(COMPLETIONS, *lines),
        post(COMPLETIONS, FIELDS, *lines),
    ]


class Recorder:
    """What a parser calls, with all pieces of a body as one."""

    def __init__(self, parser_class):
        self.url, self.headers, self.heard = b"", [], []
        self.parser = parser_class(self)

    def on_message_begin(self):
        self.url, self.headers = b"", []

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        self.headers.append((name, value))

    def on_headers_complete(self):
        if not is_to_be_read_again(self.parser):
            self.heard.append((self.parser.get_method(), self.url, bytearray()))

    def on_body(self, body):
        self.heard[-1][2].extend(body)

    def on_message_complete(self):
        if not is_to_be_read_again(self.parser):
            self.heard.append("complete")


def is_to_be_read_again(parser):
    return isinstance(parser, Http1Parser) and parser.asks_for_upgrade()


def heard(parser_class, data, size):
    recorder = Recorder(parser_class)
    for at in range(0, len(data), size):
        recorder.parser.feed_data(data[at : at + size])
    return recorder.heard


@pytest.mark.parametrize("lines", [TO_HTTP2, TO_WEBSOCKET])
def test_wherever_bytes_are_split_nothing_of_a_request_is_lost(lines) -> None:
    upgrading = requests(*lines)
    mixed = [one for pair in zip(upgrading, requests(), strict=True) for one in pair]
    plain = [one for one in requests() for _ in range(2)]
    for asked, alike in ((upgrading, requests()), (mixed, plain)):
        expected = heard(httptools.HttpRequestParser, b"".join(alike), WHOLE)
        for size in (*range(1, 64), WHOLE):
            assert heard(Http1Parser, b"".join(asked), size) == expected


def answers(connection, count):
    """Return the heads and the bodies of so many answers, each of a stated length."""
    data, found = b"", []
    while len(found) < count:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
        while b"\r\n\r\n" in data:
            begin, _, rest = data.partition(b"\r\n\r\n")
            length = int(LENGTH.search(begin + b"\r\n")[1])
            if len(rest) < length:
                break
            found.append((begin, rest[:length]))
            data = rest[length:]
    assert data == b""
    return found


@pytest.mark.parametrize("lines", [TO_HTTP2, TO_WEBSOCKET])
def test_requests_that_follow_each_other_on_one_connection_are_answered(server, lines) -> None:
    with connect(server) as connection:
        for request in requests(*lines):
            connection.sendall(request)
            [(begin, _)] = answers(connection, 1)
            assert status_of(begin) == 200
        connection.sendall(b"".join(requests(*lines) + requests()))
        assert [status_of(begin) for begin, _ in answers(connection, 8)] == [200] * 8


@pytest.mark.parametrize("split", [1, 100, -2])
def test_a_body_may_come_after_its_headers(server, split) -> None:
    request = post(COMPLETIONS, FIELDS, *TO_HTTP2)
    body_at = request.index(b"\r\n\r\n") + 4
    for at in (split, body_at):
        with connect(server) as connection:
            connection.sendall(request[:at])
            assert server.http.get("/readyz").status_code == 200
            connection.sendall(request[at:])
            [(begin, body)] = answers(connection, 1)
            assert status_of(begin) == 200
            assert b" Paris" in body


def test_a_client_that_waits_before_its_body_is_told_to_go_on(server) -> None:
    request = post(COMPLETIONS, FIELDS, "expect: 100-continue", *TO_HTTP2)
    body_at = request.index(b"\r\n\r\n") + 4
    with connect(server) as connection:
        connection.sendall(request[:body_at])
        assert read_until(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(request[body_at:])
        [(begin, _)] = answers(connection, 1)
        assert status_of(begin) == 200


def test_a_connection_that_was_to_close_closes(server) -> None:
    lines = ("connection: close, upgrade", "upgrade: h2c")
    with connect(server) as connection:
        connection.sendall(post(COMPLETIONS, FIELDS, *lines))
        answer = read_all(connection)
    assert status_of(answer) == 200
    assert b"\r\nconnection: close\r\n" in answer


@pytest.mark.parametrize(
    ("path", "status"), [(COMPLETIONS, 405), ("/v1/none", 404), ("/v1/models", 200)]
)
def test_the_handshake_of_a_websocket_is_an_ordinary_get(server, path, status) -> None:
    with connect(server) as connection:
        connection.sendall(head(path, *TO_WEBSOCKET, method="GET"))
        [(begin, _)] = answers(connection, 1)
    assert status_of(begin) == status
    assert b"upgrade" not in begin.lower()


@pytest.mark.parametrize("lines", [(), TO_HTTP2])
def test_a_tunnel_is_refused(server, lines) -> None:
    for target in ("localhost:443", "/v1/models"):
        with connect(server) as connection:
            connection.sendall(head(target, *lines, method="CONNECT"))
            assert status_of(read_until(connection, b"\r\n\r\n")) in (400, 405)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        head("/readyz", *["x: y"] * MAX_HEADERS, method="GET"),
        head("/readyz", "x: " + "y" * Settings.max_header_bytes, method="GET"),
    ],
)
def test_what_is_no_request_gets_an_error_of_the_common_form(server, data) -> None:
    with connect(server) as connection:
        connection.sendall(data)
        begin, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert status_of(begin) == 400
    assert b"\r\ncontent-type: application/json" in begin
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    request_id = IDENTITY.search(begin)[1].decode()
    server.wait_for_log(request_id)
    [line] = [one for one in server.log().splitlines() if request_id in one]
    assert (json.loads(line)["endpoint"], json.loads(line)["status"]) == ("other", 400)


def test_two_lengths_stay_an_error(server) -> None:
    lines = (JSON, "content-length: 3", "transfer-encoding: chunked", *TO_HTTP2)
    with connect(server) as connection:
        connection.sendall(head(COMPLETIONS, *lines) + b"3\r\n{ }\r\n0\r\n\r\n")
        assert status_of(read_all(connection)) == 400
