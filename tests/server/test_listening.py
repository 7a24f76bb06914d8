"""Taking a port: one server has it, and says who may come in."""

import socket
import subprocess
import time
from contextlib import closing

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.server.http.admission import is_loopback
from glm_engine.server.http.lifecycle import bind
from glm_engine.server.server_settings import Settings
from tests.server.serving import (
    COMMAND,
    ENVIRONMENT,
    PATIENCE_SECONDS,
    READY,
    ROOT,
    device_options,
    held_port,
)

OPEN = "glm: warning: anyone who can reach http://"


def launch(path, port):
    with open(path, "wb") as log:
        return subprocess.Popen(
            [*COMMAND, *device_options(), "--port", str(port)],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def test_a_port_is_taken_before_anything_else_is_done() -> None:
    with closing(bind(Settings(port=0))) as first:
        host, port = first.getsockname()
        with pytest.raises(BadInputError, match=f"cannot listen on {host}:{port}: .* in use"):
            bind(Settings(port=port))
        with socket.create_connection((host, port), timeout=PATIENCE_SECONDS):
            pass


def test_of_two_servers_started_together_one_fails_before_it_loads(tmp_path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    with held_port() as port:
        check_that_one_fails(paths, port)


def check_that_one_fails(paths, port):
    started = [launch(path, port) for path in paths]
    try:
        until = time.monotonic() + PATIENCE_SECONDS
        while all(one.poll() is None for one in started) or not any(map(is_ready, paths)):
            assert time.monotonic() < until, [path.read_text() for path in paths]
            time.sleep(0.02)
        codes = [one.poll() for one in started]
        assert sorted(codes, key=str) == [2, None]
        line = paths[codes.index(2)].read_text()
        reason = "Address already in use; choose another port with --port"
        assert line == f"glm: cannot listen on 127.0.0.1:{port}: {reason}\n"
    finally:
        for one in started:
            one.terminate()
            one.wait(PATIENCE_SECONDS)


def is_ready(path):
    return READY.search(path.read_text()) is not None


@pytest.mark.parametrize(
    ("options", "keys", "is_said"),
    [
        (("--host", "0.0.0.0", "--log-level", "error"), {}, True),
        (("--host", "0.0.0.0"), {"GLM_API_KEYS": "secret"}, False),
        (("--host", "127.0.0.2"), {}, False),
    ],
)
def test_a_server_that_is_open_to_others_says_so(start_server, options, keys, is_said) -> None:
    server = start_server(*options, environment=keys)
    assert (OPEN in server.log()) == is_said


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "::1", "localhost"])
def test_loopback_by_any_name(host) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])
def test_what_others_reach_is_no_loopback(host) -> None:
    assert not is_loopback(host)
