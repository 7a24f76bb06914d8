"""A server goes on, and ends as it should, when nobody can take its log."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import pytest

from glm_engine.server.http.logs import MOST_WAITING_BYTES, ErrorOutput
from tests.server.raw import connect, read_all, read_until
from tests.server.serving import (
    COMMAND,
    ENDLESS,
    ENVIRONMENT,
    PATIENCE_SECONDS,
    QUESTION,
    READY,
    ROOT,
    START_SECONDS,
    device_options,
    held_port,
)
from tests.server.test_drain import LONG_DRAIN_SECONDS, start, status_of

COMPLETIONS = "/v1/completions"
FULL_DISK = "/dev/full"


def launch(errors, *arguments):
    return subprocess.Popen(
        [*COMMAND, *device_options(), *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )


def start_for_a_reader_that_goes(*arguments):
    """Start a server whose standard error is a pipe with no reader, once it listens."""
    reader, writer = os.pipe()
    process = launch(writer, "--port", 0, *arguments)
    os.close(writer)
    with open(reader, encoding="utf-8") as log:
        found = next(filter(None, map(READY.search, log)))
    return SimpleNamespace(process=process, url=found[2])


def start_for_a_reader_that_stands_still(*arguments):
    """Start a server whose standard error is a pipe that is full and that nobody reads."""
    reader, writer = os.pipe()
    process = launch(writer, "--port", 0, *arguments)
    found, rest = None, b""
    while not found:
        rest += os.read(reader, 4096)
        found = READY.search(rest.decode())
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):
            pass
    os.set_blocking(writer, True)
    os.close(writer)
    return SimpleNamespace(process=process, url=found[2], reader=reader)


def start_on_a_full_disk(*arguments):
    with held_port() as port, open(FULL_DISK, "wb") as full:
        process = launch(full, "--port", port, *arguments)
        made = SimpleNamespace(process=process, url=f"http://127.0.0.1:{port}")
        until = time.monotonic() + START_SECONDS
        while not is_listening(made):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        return made


def is_listening(server):
    try:
        answer = httpx.get(f"{server.url}/readyz", timeout=PATIENCE_SECONDS)
    except httpx.TransportError:
        return False
    return answer.status_code == 200


@pytest.fixture(
    params=[
        start_for_a_reader_that_goes,
        start_on_a_full_disk,
        start_for_a_reader_that_stands_still,
    ]
)
def start_unheard(request):
    """Start servers whose log nobody can take; they are ended with the test."""
    started = []

    def start_one(*arguments):
        started.append(request.param(*arguments))
        return started[-1]

    yield start_one
    for one in started:
        one.process.kill()
        one.process.wait()
        if hasattr(one, "reader"):
            os.close(one.reader)


def end(server, number):
    server.process.send_signal(number)
    return server.process.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_and_ends(start_unheard, number) -> None:
    server = start_unheard()
    fields = {"prompt": QUESTION}
    answer = httpx.post(f"{server.url}{COMPLETIONS}", json=fields, timeout=PATIENCE_SECONDS)
    assert answer.json()["choices"][0]["text"] == " Paris."
    with connect(server) as connection:
        connection.sendall(b"garbage\r\n\r\n")
        assert status_of(read_all(connection)) == 400
    assert end(server, number) == 0


def test_it_cuts_off_what_outlives_the_drain(start_unheard, endless_model) -> None:
    server = start_unheard(*endless_model, "--drain-seconds", 0.5)
    with start(server, ENDLESS) as running:
        read_until(running, b"data: ")
        server.process.send_signal(signal.SIGTERM)
        assert b'"code":"draining"' in read_all(running)
    assert server.process.wait(PATIENCE_SECONDS) == 1


def test_it_ends_at_once_with_a_second_signal(start_unheard, endless_model) -> None:
    server = start_unheard(*endless_model, "--drain-seconds", LONG_DRAIN_SECONDS)
    with start(server, ENDLESS) as running:
        read_until(running, b"data: ")
        server.process.send_signal(signal.SIGTERM)
        until = time.monotonic() + PATIENCE_SECONDS
        while is_listening(server):
            assert time.monotonic() < until
        assert end(server, signal.SIGTERM) == 130


def test_a_reader_that_goes_on_has_what_was_kept(monkeypatch) -> None:
    """What waits has a bound; all that Python itself writes goes the same way."""
    reader, writer = os.pipe()
    output, line = ErrorOutput(), b"x" * 1023 + b"\n"
    monkeypatch.setattr(sys, "__stderr__", io.FileIO(writer, "w"))
    with output.unblocked():
        for _ in range(4 * MOST_WAITING_BYTES // len(line)):
            output.write(line)
        began = time.monotonic()
        print("no room for it", file=sys.stderr)
        assert time.monotonic() - began < 1
        while not output.settle():
            assert os.read(reader, 1 << 16)
        print("a later line", file=sys.stderr)
    sys.__stderr__.close()
    with open(reader, "rb") as rest:
        assert rest.read().endswith(b"\na later line\n")
    assert MOST_WAITING_BYTES <= output.num_written < 2 * MOST_WAITING_BYTES
