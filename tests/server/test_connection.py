"""Many connections, many requests on one, bodies held back: others are served none the less."""

import select
import time

import httpx
import pytest

from tests.server.raw import JSON, connect, head, post, read_all, read_until, send_half_a_body
from tests.server.serving import ENDLESS, PATIENCE_SECONDS, QUESTION, ServerProcess
from tests.server.test_drain import status_of

COMPLETIONS = "/v1/completions"
KIBIBYTE = 1024
MAX_CONNECTIONS = 8
MAX_INSIDE = 2
HEADER_SECONDS = 10 * PATIENCE_SECONDS
READY = head("/readyz", method="GET")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, endless_model):
    """A server that takes few of everything."""
    running = ServerProcess(
        tmp_path_factory.mktemp("narrow"),
        *endless_model,
        *("--max-batch", 1, "--max-queue", MAX_INSIDE - 1, "--max-bodies-size", "1MiB"),
        *("--max-connections", MAX_CONNECTIONS, "--header-timeout", HEADER_SECONDS),
    )
    running.http.close()
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


def asked(server, data=READY):
    """Return the status of a request on a connection of its own."""
    with connect(server) as connection:
        connection.sendall(data)
        return status_of(read_until(connection, b"}"))


def is_answered(connection, seconds=0):
    return bool(select.select([connection], [], [], seconds)[0])


def send_all_but_the_last_byte(server, data):
    connection = connect(server)
    connection.sendall(data[:-1])
    return connection


def hold_a_large_body(server, data):
    """Return a connection whose body the server counts, all but its last byte.

    Of two bodies that come at the same time either may be the one that is refused.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    holder = send_all_but_the_last_byte(server, data)
    while asked(server, data) != 429 or is_answered(holder):
        assert time.monotonic() < until
        if is_answered(holder):
            holder = send_all_but_the_last_byte(server, data)
    return holder


def wait_until_idle(server):
    until = time.monotonic() + PATIENCE_SECONDS
    while asked(server, post(COMPLETIONS, {"prompt": QUESTION, "n": MAX_INSIDE})) != 200:
        assert time.monotonic() < until
        time.sleep(0.05)


def wait_for_live_requests(server, count):
    until = time.monotonic() + PATIENCE_SECONDS
    while httpx.get(f"{server.url}/gauges").json()["live_requests"] < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_longest_idle_connection_makes_room(narrow) -> None:
    first = connect(narrow)
    others = [connect(narrow) for _ in range(MAX_CONNECTIONS - 1)]
    assert asked(narrow) == 200
    assert read_all(first) == b""
    others[-1].sendall(READY)
    assert status_of(read_until(others[-1], b"}")) == 200
    for one in (first, *others):
        one.close()


def test_when_all_connections_are_busy_the_next_is_told(narrow) -> None:
    wait_until_idle(narrow)
    busy = [connect(narrow) for _ in range(MAX_CONNECTIONS)]
    for one in busy:
        send_half_a_body(one, COMPLETIONS)
    until = time.monotonic() + PATIENCE_SECONDS
    while (answer := refusal(narrow)) is None:
        assert time.monotonic() < until
    assert status_of(answer) == 429
    assert b"\r\nretry-after: 1\r\n" in answer
    assert b"\r\nx-request-id: " in answer
    assert answer.endswith(b'"code":"server_full"}}')
    for one in busy:
        one.close()
    wait_until_idle(narrow)


def refusal(server):
    """Return what a connection is told before it asks; None where it is taken."""
    with connect(server) as connection:
        return read_all(connection) if is_answered(connection, seconds=0.2) else None


def test_half_sent_bodies_take_no_places(narrow) -> None:
    slow = [connect(narrow) for _ in range(MAX_INSIDE * 3)]
    for one in slow:
        send_half_a_body(one, COMPLETIONS)
    wait_until_idle(narrow)
    for one in slow:
        one.close()


def test_a_body_that_comes_when_all_places_are_taken_is_refused(narrow) -> None:
    wait_until_idle(narrow)
    body = post(COMPLETIONS, {"prompt": QUESTION})
    running = [connect(narrow) for _ in range(MAX_INSIDE)]
    with connect(narrow) as late:
        late.sendall(body[:-1])
        for number, one in enumerate(running, 1):
            one.sendall(post(COMPLETIONS, ENDLESS))
            wait_for_live_requests(narrow, number)
        assert asked(narrow, body) == 429
        late.sendall(body[-1:])
        assert status_of(read_until(late, b"}}")) == 429
    for one in running:
        one.close()
    wait_until_idle(narrow)


def test_bodies_share_a_budget_and_small_ones_need_none_of_it(narrow) -> None:
    wait_until_idle(narrow)
    size = 900 * KIBIBYTE
    large = post(COMPLETIONS, {"prompt": "x" * size})
    with hold_a_large_body(narrow, large) as holder:
        assert asked(narrow, post(COMPLETIONS, {"prompt": QUESTION})) == 200
        holder.sendall(large[-1:])
        assert status_of(read_until(holder, b"}}")) == 400
    assert asked(narrow, large) == 400


def test_few_requests_may_follow_each_other_at_once_and_not_many(narrow) -> None:
    with connect(narrow) as connection:
        connection.sendall(READY * 10)
        data = b""
        while data.count(b"HTTP/1.1 200 ") < 10:
            piece = connection.recv(65536)
            assert piece, data
            data += piece
    with connect(narrow) as connection:
        connection.sendall(READY * 1000)
        assert read_all(connection).count(b"HTTP/1.1 200 ") < 100
    assert asked(narrow) == 200


def send_often(connection, piece, times=10_000):
    for _ in range(times):
        connection.sendall(piece)


CHUNKED = head(COMPLETIONS, JSON, "transfer-encoding: chunked")


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (CHUNKED, b"1\r\n \r\n" * 1000),
        (CHUNKED + b"1;", b"x" * 8192),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-a: " + b"y" * 8192 + b"\r\n"),
        (CHUNKED + b"2\r\n{}\r\n0\r\nx-a: ", b"y" * 8192),
        (b"GET /readyz HTTP/1.1\r\n", b"x-a: y\r\n" * 200),
        (b"GET /readyz HTTP/1.1\r\nx-a: ", b"y" * 8192),
        (b"GET /", b"y" * 8192),
    ],
)
def test_what_is_no_body_is_bounded(narrow, begin, piece) -> None:
    with connect(narrow) as connection:
        connection.sendall(begin)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_often(connection, piece)
    assert asked(narrow) == 200


def test_a_body_in_small_chunks_is_taken(narrow) -> None:
    body = b'{"prompt":"x","max_tokens":1}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\nx-sum: 1\r\n\r\n"
    assert asked(narrow, CHUNKED + chunks) == 200
