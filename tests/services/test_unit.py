"""The systemd unit, run by a small harness and not by systemd: start, restart, drain.

The harness does what the unit's own lines say: options, signal, patience, what is started again.
"""

import signal
from pathlib import Path

import pytest

from glm_engine.cli import command_line
from glm_engine.server.http.lifecycle import LAST_WRITES_SECONDS
from tests.server.raw import read_all, read_until
from tests.server.serving import QUESTION, ServerProcess
from tests.server.test_drain import start
from tests.services.test_files import unit

LONG = {"prompt": QUESTION, "stream": True, "ignore_eos": True, "max_tokens": 1000}


class Supervisor:
    """Starts and stops the server of a unit as its lines say."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.service = unit()["Service"]
        _, self.command, *self.options = self.service["ExecStart"].split()
        self.patience = int(self.service["TimeoutStopSec"])
        self.started = []

    def start(self) -> ServerProcess:
        assert self.command == "serve"
        folder = self.folder / str(len(self.started))
        folder.mkdir()
        self.started.append(ServerProcess(folder, *self.options))
        return self.started[-1]

    def stop(self) -> None:
        self.started[-1].send_signal(signal.Signals[self.service["KillSignal"]])

    def starts_again_after(self, code: int) -> bool:
        """Whether the unit's Restart line starts it again after this exit code or signal."""
        assert self.service["Restart"] == "on-failure"
        prevented = map(int, self.service["RestartPreventExitStatus"].split())
        return code != 0 and code not in prevented

    def kill(self) -> None:
        for one in self.started:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def supervisor(tmp_path):
    made = Supervisor(tmp_path)
    yield made
    made.kill()


def test_a_killed_server_is_started_again_and_a_stopped_one_finishes_what_runs(supervisor) -> None:
    killed = supervisor.start()
    killed.send_signal(signal.SIGKILL)
    assert supervisor.starts_again_after(killed.wait())
    server = supervisor.start()
    with start(server, LONG) as running:
        begun = read_until(running, b"data: ")
        supervisor.stop()
        text = begun + read_all(running)
    assert text.count(b'"finish_reason":"length"') == 1
    code = server.process.wait(supervisor.patience)
    assert (code, supervisor.starts_again_after(code)) == (0, False)


def test_a_unit_that_states_a_wrong_option_is_not_started_again_and_again(supervisor) -> None:
    code = command_line.main(["serve", *supervisor.options, "--port", "65536"])
    assert (code, supervisor.starts_again_after(code)) == (2, False)


def test_patience_outlasts_the_drain(supervisor) -> None:
    drain_seconds = int(supervisor.options[supervisor.options.index("--drain-seconds") + 1])
    assert supervisor.patience > drain_seconds + LAST_WRITES_SECONDS
