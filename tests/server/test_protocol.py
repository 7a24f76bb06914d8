"""A connection's protocol alone, over a transport of the test's own: which bytes come in one read
and which are sent is up to the test."""

import asyncio
import functools

import pytest
import uvicorn
from uvicorn.server import ServerState

from glm_engine.server.http.protocol import bounded
from glm_engine.server.http.streaming import wait_for_disconnect
from glm_engine.server.server_settings import FREE_BODY_BYTES, MAX_HEADERS, MAX_PIPELINED, Settings
from tests.server.raw import JSON, head

COMPLETIONS = "/v1/completions"
READY = head("/readyz", method="GET")
CHUNKED = head(COMPLETIONS, JSON, "transfer-encoding: chunked")
ASKED = head(COMPLETIONS, JSON, "content-length: 2") + b"{}"
BEGUN = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
WHOLE = {"type": "http.response.body", "body": b"{}"}


class Wire(asyncio.Transport):
    """Keeps what is written; `held` bytes of it are not sent."""

    def __init__(self):
        super().__init__()
        self.written = b""
        self.held = 0
        self.is_paused = self.is_closed = self.is_aborted = False

    def write(self, data):
        assert not self.is_closed
        self.written += data

    def get_write_buffer_size(self):
        return self.held

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def is_closing(self):
        return self.is_closed

    def close(self):
        self.is_closed = True

    def abort(self):
        self.is_closed = self.is_aborted = True


class Application:
    """Reads each body, begins an answer, and ends it when the test lets it or the client goes."""

    def __init__(self):
        self.asked, self.gone = [], []
        self.may_end = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.asked.append(scope)
        while (await receive()).get("more_body"):
            pass
        await send(BEGUN)
        going = asyncio.ensure_future(wait_for_disconnect(receive))
        ending = asyncio.ensure_future(self.may_end.wait())
        await asyncio.wait((going, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if going.done():
            self.gone.append(scope["path"])
        going.cancel()
        await send(WHOLE)


class Bench:
    """A server's connections without sockets; `refused` holds why it refused."""

    def __init__(self, **limits):
        self.application, self.refused = Application(), []
        self.state = ServerState()
        self.config = uvicorn.Config(
            self.application, ws="none", lifespan="off", log_config=None, proxy_headers=False
        )
        self.kind = bounded(Settings(**limits), self.refusal)

    def refusal(self, error, _headers, **_known):
        self.refused.append(error.detail)
        return b"refused"

    def connect(self):
        made = self.kind(self.config, self.state, {}, asyncio.get_running_loop())
        made.connection_made(Wire())
        return made


def in_loop(test):
    @functools.wraps(test)
    def run(**arguments):
        asyncio.run(test(**arguments))

    return run


async def until(is_true):
    """Let the loop's other tasks go on until this is true; they wait for nothing outside."""
    for _ in range(100):
        if is_true():
            return
        await asyncio.sleep(0)
    raise AssertionError


async def ask(bench, connection):
    """Send a request whose answer begins and does not end."""
    count = len(bench.application.asked)
    connection.data_received(ASKED)
    await until(lambda: len(bench.application.asked) > count and connection.transport.written)


@in_loop
async def test_the_running_request_learns_that_the_client_has_gone():
    bench = Bench()
    connection = bench.connect()
    await ask(bench, connection)
    for _ in range(2):
        connection.data_received(READY)
        assert not connection.transport.is_paused
    connection.transport.close()
    connection.connection_lost(None)
    await until(lambda: bench.application.gone)
    await until(lambda: not bench.state.tasks)
    assert bench.application.gone == [COMPLETIONS]
    assert len(bench.application.asked) == 1
    assert connection.running is connection.cycle is None
    assert not connection.pipeline


@in_loop
async def test_a_connection_broken_off_ends_what_runs_before_it_is_lost():
    bench = Bench()
    connection = bench.connect()
    await ask(bench, connection)
    connection.data_received(READY)
    connection.abort()
    await until(lambda: bench.application.gone)
    assert connection.transport.is_aborted


@in_loop
async def test_requests_that_wait_are_answered_in_their_order():
    bench = Bench()
    connection = bench.connect()
    await ask(bench, connection)
    for number in range(MAX_PIPELINED):
        connection.data_received(head(f"/{number}", method="GET"))
    bench.application.may_end.set()
    await until(lambda: connection.transport.written.count(b"200 OK") == MAX_PIPELINED + 1)
    paths = [scope["path"] for scope in bench.application.asked]
    assert paths == [COMPLETIONS, *(f"/{number}" for number in range(MAX_PIPELINED))]
    assert not connection.transport.is_closed


@in_loop
async def test_the_headers_of_a_third_request_come_in_two_reads():
    bench = Bench()
    connection = bench.connect()
    await ask(bench, connection)
    connection.data_received(READY + READY[:20])
    assert connection.header_timer is not None
    assert not connection.transport.is_paused
    connection.data_received(READY[20:])
    assert connection.header_timer is None
    assert len(connection.pipeline) == 2


@pytest.mark.parametrize(
    "behind",
    [
        READY * (MAX_PIPELINED + 1),
        head("/", f"content-length: {FREE_BODY_BYTES + 1}") + b"x" * (FREE_BODY_BYTES + 1),
        (head("/", f"content-length: {FREE_BODY_BYTES}") + b"x" * FREE_BODY_BYTES) * 2,
        b"garbage\r\n\r\n",
    ],
)
@in_loop
async def test_what_may_not_wait_ends_the_connection_and_no_answer_within_another(behind):
    bench = Bench()
    connection = bench.connect()
    await ask(bench, connection)
    begun = connection.transport.written
    connection.data_received(behind)
    assert connection.transport.is_closed
    assert connection.transport.written == begun
    assert len(bench.refused) == 1
    connection.connection_lost(None)
    await until(lambda: bench.application.gone)


@in_loop
async def test_room_is_made_where_the_last_answer_has_been_sent():
    bench = Bench(max_connections=3)
    bench.application.may_end.set()
    sending, first, second = (bench.connect() for _ in range(3))
    for one in (sending, first, second):
        one.data_received(READY)
    await until(lambda: len(bench.kind.idle) == 3)
    sending.transport.held = 100
    third = bench.connect()
    assert [one.transport.is_aborted for one in (sending, first, second)] == [False, True, False]
    for one in (second, third):
        one.transport.held = 100
    bench.connect()
    assert sending.transport.is_aborted
    assert bench.refused == []


@in_loop
async def test_the_end_of_a_body_is_not_counted_among_the_next_headers():
    bench = Bench()
    bench.application.may_end.set()
    connection = bench.connect()
    size = Settings.max_header_bytes + 1
    body = head(COMPLETIONS, JSON, f"content-length: {size}") + b" " * size
    connection.data_received(body + READY[:20])
    connection.data_received(READY[20:])
    await until(lambda: connection.transport.written.count(b"200 OK") == 2)
    assert bench.refused == []


@pytest.mark.parametrize("size", [1, 1000, 10 * Settings.max_header_bytes])
@in_loop
async def test_headers_are_bounded_however_they_come(size):
    bench = Bench()
    connection = bench.connect()
    data = head("/", *[f"x: {'y' * 2000}"] * 40, method="GET")
    for at in range(0, len(data), size):
        connection.data_received(data[at : at + size])
        if connection.transport.is_closed:
            break
    assert len(bench.refused) == 1
    assert bench.application.asked == []


@in_loop
async def test_trailers_are_no_headers():
    bench = Bench()
    bench.application.may_end.set()
    connection = bench.connect()
    trailers = b"authorization: Bearer key\r\nexpect: 100-continue\r\n\r\n"
    connection.data_received(CHUNKED + b"2\r\n{}\r\n0\r\n" + trailers)
    await until(lambda: b"200 OK" in connection.transport.written)
    [scope] = bench.application.asked
    names = [name for name, _ in scope["headers"]]
    assert names == [b"host", b"content-type", b"transfer-encoding"]
    assert b"100 Continue" not in connection.transport.written


@in_loop
async def test_trailers_are_counted_with_the_headers():
    bench = Bench()
    connection = bench.connect()
    connection.data_received(CHUNKED + b"0\r\n" + b"x: y\r\n" * MAX_HEADERS)
    assert len(bench.refused) == 1
    assert connection.transport.is_closed
