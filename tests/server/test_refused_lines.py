"""Each way in which a request is refused leaves one line: method, path, client, status, reason."""

import re
import secrets
import time

import pytest

from tests.server.raw import JSON, connect, head, post, read_all, read_until, send_half_a_body
from tests.server.serving import ENDLESS, PATIENCE_SECONDS, QUESTION, ServerProcess

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
CLIENT = re.compile(r"127\.0\.0\.1:\d+")
KEY = {"authorization": "Bearer secret"}
LIMITS = ("--header-timeout", 0.5, "--body-timeout", 0.5, "--max-body-size", "100kB")
OPTIONS = (*LIMITS, "--api-key", "secret", "--allowed-host", "known.org")


def lines(server, **wanted):
    """The request lines of a log that have these fields."""
    requests = [one for one in server.events() if one["event"] == "request"]
    return [one for one in requests if wanted.items() <= one.items()]


def wait_for_line(server, **wanted):
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := lines(server, **wanted)):
        assert time.monotonic() < until, f"{wanted} is not in\n{server.log()}"
        time.sleep(0.02)
    return found[-1]


def check(server, reason, **wanted):
    """Check the line of a refused request, found by what is known of it."""
    line = wait_for_line(server, **wanted)
    assert CLIENT.fullmatch(line["client"])
    assert re.search(reason, line["reason"]), line
    return line


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    origin = ("--allowed-origin", "https://chat.home.org")
    running = ServerProcess(tmp_path_factory.mktemp("serve"), *OPTIONS, *origin)
    yield running
    assert running.stop() == 0, running.log()


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "reason"),
    [
        ("POST", COMPLETIONS, {"headers": {}, "json": {"prompt": "x"}}, 401, "missing API key"),
        ("POST", COMPLETIONS, {"headers": {"x-api-key": "no"}}, 401, "incorrect API key"),
        ("GET", "/", {"headers": {"host": "elsewhere.org"}}, 403, "elsewhere.org"),
        ("GET", "/v1/nothing", {}, 404, "Not Found"),
        ("PUT", "/v1/models", {}, 405, "Method Not Allowed"),
        ("HEAD", "/v1/none", {}, 404, "Not Found"),
        ("POST", COMPLETIONS, {"content": b"x", "headers": {**KEY}}, 415, "application/json"),
        ("POST", COMPLETIONS, {"json": {"prompt": "x", "top_p": 3}}, 400, "^top_p: "),
        ("POST", COMPLETIONS, {"json": {"prompt": "x" * 99_000}}, 400, "context length"),
        ("POST", COMPLETIONS, {"json": {"prompt": "x" * 200_000}}, 413, "100000 bytes"),
        ("POST", CHAT, {"json": {"model": "gpt-4", "messages": [{"role": "user"}]}}, 404, "gpt-4"),
        ("POST", "/v1/messages", {"json": {"messages": []}}, 400, "^messages: "),
        (
            "OPTIONS",
            CHAT,
            {"headers": {"origin": "https://no.org", "access-control-request-method": "POST"}},
            400,
            "CORS origin",
        ),
    ],
)
def test_refusals_by_the_application(strict, method, path, more, status, reason) -> None:
    request_id = secrets.token_hex(8)
    headers = {**more.get("headers", KEY), "x-request-id": request_id}
    answer = strict.http.request(method, path, **{**more, "headers": headers})
    assert answer.status_code == status
    line = check(strict, reason, request_id=request_id)
    assert (line["method"], line["path"], line["status"]) == (method, path, status)
    assert line["level"] == ("info" if path == "/" else "warning")


@pytest.mark.parametrize(
    ("sent", "method", "path", "reason"),
    [
        (b"garbage\r\n\r\n", "-", "-", "invalid HTTP request: .*method"),
        (head("/a?key=1", *["x: y"] * 200), "POST", "/a", "more than 128 headers"),
        (head("/b", "x: " + "y" * 99_000, method="GET"), "GET", "/b", "65536 bytes"),
        (head("/c", "content-length: 2", "content-length: 3"), "POST", "/c", "Content-Length"),
    ],
)
def test_what_is_no_http(strict, sent, method, path, reason) -> None:
    before = len(lines(strict, status=400, method=method, path=path))
    with connect(strict) as connection:
        connection.sendall(sent)
        read_all(connection)
        line = check(strict, reason, status=400, method=method, path=path)
    assert len(lines(strict, status=400, method=method, path=path)) == before + 1
    assert (line["endpoint"], line["level"]) == ("other", "warning")


def test_headers_and_bodies_that_do_not_arrive(strict) -> None:
    with connect(strict) as connection:
        connection.sendall(b"POST /late?key=1 HTTP/1.1\r\nhost: x\r\n")
        assert read_all(connection) == b""
    check(strict, "headers did not arrive within 0.5 s", path="/late", method="POST", status=408)
    with connect(strict) as connection:
        connection.sendall(
            head(CHAT, JSON, "content-length: 9", "authorization: Bearer secret") + b"{"
        )
        read_until(connection, b"HTTP/1.1 408 ")
    check(strict, "body did not arrive within 0.5 s", path=CHAT, status=408)


def test_a_connection_without_a_byte_is_no_request(strict) -> None:
    before = len(lines(strict))
    with connect(strict) as connection:
        assert read_all(connection) == b""
    assert len(lines(strict)) == before


def test_too_many_connections(start_server) -> None:
    server = start_server("--max-connections", 1)
    server.http.close()
    with connect(server) as busy:
        send_half_a_body(busy, COMPLETIONS)
        with connect(server) as late:
            assert b" 429 " in read_all(late)
    check(server, "too many open connections", status=429, method="-", path="-")


def test_a_full_queue_and_a_drain(start_server, endless_model) -> None:
    server = start_server(*endless_model, "--max-batch", 1, "--max-queue", 1, "--drain-seconds", 1)
    with connect(server) as running, connect(server) as waiting:
        running.sendall(post(COMPLETIONS, ENDLESS))
        server.wait_for_gauges(live_requests=1, waiting_requests=0)
        waiting.sendall(post(COMPLETIONS, ENDLESS))
        server.wait_for_gauges(waiting_requests=1)
        fields = {"prompt": QUESTION}
        assert server.http.post(COMPLETIONS, json=fields).status_code == 429
        check(server, "2 requests", status=429, path=COMPLETIONS, method="POST")
        server.send_signal(15)
        server.wait_for_log('"draining"')
        with connect(server) as late:
            late.sendall(post(CHAT, fields))
            read_all(late)
        check(server, "shutting down", status=503, path=CHAT)
        read_all(running)
    check(server, "shutting down", status=503, path=COMPLETIONS)
    server.wait()


def test_a_client_that_goes(endless_server) -> None:
    with connect(endless_server) as connection:
        connection.sendall(post(COMPLETIONS, ENDLESS, "x-request-id: gone"))
        connection.recv(1)
    line = check(endless_server, "connection was closed before", status=499, request_id="gone")
    assert line["level"] == "info"


def test_what_is_answered_has_no_reason(server) -> None:
    headers = {"x-request-id": "answered"}
    server.http.post(COMPLETIONS, json={"prompt": QUESTION}, headers=headers)
    line = wait_for_line(server, request_id="answered")
    assert (line["method"], line["path"], line["status"]) == ("POST", COMPLETIONS, 200)
    assert CLIENT.fullmatch(line["client"])
    assert "reason" not in line
    assert line["level"] == "info"


def test_refusals_pass_the_level_warning(start_server) -> None:
    server = start_server("--log-level", "warning")
    fields = {"prompt": QUESTION}
    server.http.post(COMPLETIONS, json=fields, headers={"x-request-id": "answered"})
    server.http.get("/", headers={"host": "elsewhere.org"})
    server.http.post(COMPLETIONS, json={**fields, "top_p": 3})
    wait_for_line(server, status=400)
    assert [line["status"] for line in lines(server)] == [400]


def test_long_paths_are_cut(server) -> None:
    server.http.get("/" + "x" * 5000, headers={"x-request-id": "long"})
    assert len(wait_for_line(server, request_id="long")["path"]) <= 256
