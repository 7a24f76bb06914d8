"""Ctrl-C in this process, where what is done on it is just being changed."""

import signal
import threading
import time

import pytest

from glm_engine.load import processes
from glm_engine.load.http_client import parse_address
from glm_engine.load.target import Target
from glm_engine.load.workload import Ask
from tests.python.load.serving import MODEL

PATIENCE = 60


@pytest.fixture(autouse=True)
def handler():
    """What is done on Ctrl-C, which is the same after the test."""
    found = signal.getsignal(signal.SIGINT)
    yield found
    signal.signal(signal.SIGINT, found)


def run(server, num_workers):
    target = Target(parse_address(server.url), MODEL, "completions")
    asks = [Ask(0.0, [1, 2], 3)] * 12
    try:
        return processes.run_asks(target, asks, None, 2 * PATIENCE, num_workers)
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C took the outcomes away")


def outcomes_of(outcomes):
    return sorted(record.outcome for outcome in outcomes for record in outcome.records)


def press_around_changes(monkeypatch):
    """Let Ctrl-C fall before and after each change of what is done on it."""
    change = signal.signal

    def pressed(number, wanted):
        signal.raise_signal(signal.SIGINT)
        found = change(number, wanted)
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.setattr(signal, "signal", pressed)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_interruptions_after_the_first_leave_the_figures(server, num_workers, monkeypatch):
    server.reset(stalls_after=5)

    def interrupt():
        until = time.monotonic() + PATIENCE
        while (len(server.seen), server.under_way) != (12, 7) and time.monotonic() < until:
            time.sleep(0.02)
        press_around_changes(monkeypatch)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcomes = run(server, num_workers)
    thread.join()
    monkeypatch.undo()
    assert any(outcome.is_interrupted for outcome in outcomes)
    assert len(outcomes_of(outcomes)) == 12
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_interruption_while_processes_end_counts(server, monkeypatch):
    together = processes.run_together

    def interrupted_at_the_end(*arguments):
        outcomes = together(*arguments)
        signal.raise_signal(signal.SIGINT)
        return outcomes

    monkeypatch.setattr(processes, "run_together", interrupted_at_the_end)
    outcomes = run(server, 2)
    assert outcomes_of(outcomes) == ["200"] * 12
    assert any(outcome.is_interrupted for outcome in outcomes)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.parametrize("num_workers", [1, 2])
def test_without_an_interruption_nothing_has_changed(server, num_workers, handler):
    outcomes = run(server, num_workers)
    assert not any(outcome.is_interrupted for outcome in outcomes)
    assert signal.getsignal(signal.SIGINT) is handler
