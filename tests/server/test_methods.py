"""HEAD wherever GET is answered, and clients of HTTP/1.0."""

import json

import pytest

from tests.server.raw import connect, head, post, read_all
from tests.server.serving import QUESTION
from tests.server.test_drain import status_of

COMPLETIONS = "/v1/completions"
PATHS = ("/healthz", "/health", "/readyz", "/metrics", "/gauges", "/", "/v1/models")
FIELDS = {"prompt": QUESTION, "max_tokens": 2}


def answer_to(server, data):
    """Return the lines of an answer's head, and the body."""
    with connect(server) as connection:
        connection.sendall(data)
        begin, _, body = read_all(connection).partition(b"\r\n\r\n")
    return begin.lower().split(b"\r\n"), body


def names_of(lines):
    return [line.partition(b":")[0] for line in lines[1:]]


@pytest.mark.parametrize("path", PATHS)
def test_head_is_get_without_the_body(server, path) -> None:
    lines, body = answer_to(server, head(path, "connection: close", method="HEAD"))
    expected, _ = answer_to(server, head(path, "connection: close", method="GET"))
    assert body == b""
    assert lines[0] == expected[0] == b"http/1.1 200 ok"
    assert names_of(lines) == names_of(expected)
    assert b"content-length" in names_of(lines)


def test_head_leaves_the_connection_open(server) -> None:
    assert server.http.head("/healthz").status_code == 200
    assert server.http.head("/v1/none").status_code == 404
    assert server.http.head(COMPLETIONS).headers["allow"] == "POST"
    assert server.http.get("/healthz").json() == {"status": "ok"}


def test_other_methods_are_told_of_head(server) -> None:
    answer = server.http.post("/healthz")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_the_description_does_not_list_head(server) -> None:
    paths = server.http.get("/openapi.json").json()["paths"]
    assert {method for methods in paths.values() for method in methods} == {"get", "post"}


def test_a_stream_for_http_1_0_is_not_chunked_and_ends_with_the_connection(server) -> None:
    request = post(COMPLETIONS, {**FIELDS, "stream": True}, version="1.0")
    lines, body = answer_to(server, request)
    assert status_of(lines[0]) == 200
    assert b"connection: close" in lines
    assert b"transfer-encoding" not in names_of(lines)
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    texts = [json.loads(event[6:])["choices"][0]["text"] for event in events[:-2]]
    assert "".join(texts).startswith(" Paris")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_answer_for_http_1_0_has_its_length(server, method) -> None:
    lines, body = answer_to(server, head("/healthz", method=method, version="1.0"))
    assert b"content-length: 15" in lines
    assert body == (b'{"status":"ok"}' if method == "GET" else b"")
