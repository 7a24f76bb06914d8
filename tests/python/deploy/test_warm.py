"""The process of a warm server: its last lines, and a signal that comes while it is started."""

import signal
import subprocess
import sys
import time

import pytest

from glm_engine.core.errors import ExitCode
from glm_engine.deploy import warm
from glm_engine.deploy.job import Job
from glm_engine.deploy.program import StageFailedError
from tests.python.deploy.running import events

READY = "glm: serving capitals on http://127.0.0.1:8000"
NUM_LINES = 100
SECONDS = 60


class SlowOutput:
    """Standard error of which each write takes a while."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        time.sleep(0.005)
        self.text += text

    def flush(self):
        """Do nothing: nothing is held back."""


@pytest.fixture
def server():
    """A warm server that is ended with the test."""
    made = warm.WarmServer(Job("capitals", device="cpu", host="127.0.0.1", port=0))
    yield made
    made.process.kill()
    made.process.wait()


def serve_by(code, monkeypatch):
    """Let this Python code stand for `glm serve`."""
    monkeypatch.setattr(warm, "GLM", (sys.executable, "-c", code))


def test_all_that_a_server_said_comes_before_its_end(server, monkeypatch):
    written = SlowOutput()
    monkeypatch.setattr(sys, "stderr", written)
    words = f"print({READY!r}, *range({NUM_LINES}), sep='\\n', file=sys.stderr)"
    serve_by(f"import sys; {words}", monkeypatch)
    server.start()
    assert server.wait() == 0
    said = written.text.splitlines()
    assert said[:-1] == [READY, *map(str, range(NUM_LINES))]
    assert [one["event"] for one in events(said[-1])] == ["server_stopped"]


@pytest.mark.parametrize("is_early", [True, False])
def test_a_signal_that_comes_while_the_process_is_made_ends_it(server, monkeypatch, is_early):
    serve_by("import time; time.sleep(600)", monkeypatch)
    make = subprocess.Popen

    def interrupted(*arguments, **options):
        if is_early:
            server.drain()
        made = make(*arguments, **options)
        if not is_early:
            server.drain()
        return made

    monkeypatch.setattr(warm.subprocess, "Popen", interrupted)
    with pytest.raises(StageFailedError, match="stopped before it was ready") as caught:
        server.start()
    assert caught.value.exit_code == ExitCode.INTERRUPTED
    assert server.process.wait(SECONDS) == -signal.SIGTERM
