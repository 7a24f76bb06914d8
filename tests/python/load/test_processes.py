"""Ctrl-C at any time, processes that die, and a parent that does."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.python.commands.running import ENVIRONMENT, GLM, ROOT
from tests.python.load.serving import FOREVER

AT_ONCE = ("--rate", "inf", "--requests", "12", "--warm-up", "0")
INTERRUPTED = ["glm:", "interrupted"]
SOON, PATIENCE = 25, 120
STOP_SECONDS = 2
IMPATIENT = f"""
from glm_engine.load import processes
processes.STOP_SECONDS = {STOP_SECONDS}
from glm_engine.__main__ import run
raise SystemExit(run())
"""


@pytest.fixture
def start():
    """Start `glm load` in a group of its own; what is left of it is ended afterwards."""
    started = []

    def start_load(url, *arguments, form=("--json",), command=GLM):
        process = subprocess.Popen(
            [*command, "load", url, *map(str, arguments), *form],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start_load
    for process in started:
        for one in family_of(process.pid):
            one.kill()
        process.communicate()


def wait_until(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def is_at_rest(number):
    """Say whether a process and its children have read all that came: they only sleep."""
    process = psutil.Process(number)
    family = [process, *process.children(recursive=True)]
    before = [one.cpu_times() for one in family]
    is_asleep = all(one.status() == psutil.STATUS_SLEEPING for one in family)
    time.sleep(0.1)
    return is_asleep and [one.cpu_times() for one in family] == before


def family_of(number):
    try:
        process = psutil.Process(number)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def workers_of(process):
    children = psutil.Process(process.pid).children()
    return [one for one in children if "--multiprocessing-fork" in one.cmdline()]


def end_of(process, seconds=PATIENCE):
    """The exit code, the report if there is one, and the words of errors."""
    output, errors = process.communicate(timeout=seconds)
    assert "Traceback" not in errors
    return process.returncode, json.loads(output) if output else None, errors.split()


def test_what_processes_saw_may_be_more_than_a_pipe_holds(server, start):
    arguments = ("--rate", "inf", "--requests", 40, "--outputs", "fixed:3000", "--warm-up", 0)
    code, report, _ = end_of(start(server.url, *arguments, "--workers", 2))
    assert code == 0
    assert report["points"][0]["num_events"] == 40 * 3000


def test_processes_of_a_load_see_no_secret(server, start, monkeypatch):
    monkeypatch.setitem(ENVIRONMENT, "GLM_API_KEY", "a-key-of-the-target")
    monkeypatch.setitem(ENVIRONMENT, "HF_TOKEN", "a-token-of-the-hub")
    server.reset(delay=FOREVER)
    process = start(server.url, *AT_ONCE, "--workers", 2)
    wait_until(lambda: len(server.seen) == 12)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 3
    for one in family:
        with open(f"/proc/{one.pid}/environ", "rb") as environment:
            content = environment.read()
        assert b"a-key-of" not in content
        assert b"a-token-of" not in content


def test_a_process_of_a_load_that_stands_still_does_not_hold_its_end(server, start):
    server.reset(delay=FOREVER)
    impatient = (sys.executable, "-c", IMPATIENT)
    process = start(server.url, *AT_ONCE, "--workers", 2, command=impatient)
    wait_until(lambda: len(server.seen) == 12)
    workers_of(process)[0].suspend()
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    code, report, _ = end_of(process)
    assert code == 130
    assert report is not None
    assert time.monotonic() - began >= STOP_SECONDS


def test_an_interruption_of_the_warm_up_is_the_end(server, start):
    server.reset(delay=FOREVER)
    process = start(server.url, "--warm-up", 2)
    wait_until(lambda: len(server.seen) == 2)
    os.killpg(process.pid, signal.SIGINT)
    assert end_of(process) == (130, None, INTERRUPTED)
    assert len(server.seen) == 2


def test_an_interruption_while_processes_start_is_the_end(server, start):
    process = start(server.url, *AT_ONCE, "--workers", 3)
    wait_until(lambda: workers_of(process))
    os.killpg(process.pid, signal.SIGINT)
    code, report, errors = end_of(process)
    assert code == 130
    assert errors == ([] if report else INTERRUPTED)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_interrupted_it_reports_what_is_there(server, start, num_workers):
    server.reset(delay=0.01, stalls_after=5)
    process = start(server.url, *AT_ONCE, "--workers", num_workers)
    wait_until(lambda: len(server.seen) == 12 and server.under_way == 7)
    wait_until(lambda: is_at_rest(process.pid))
    os.killpg(process.pid, signal.SIGINT)
    code, report, errors = end_of(process)
    assert (code, errors) == (130, [])
    [point] = report["points"]
    assert point["outcomes"] == {"interrupted": 7, "200": 5}
    assert point["is_interrupted"]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_two_interruptions_of_the_parent_alone_leave_the_figures(server, start, num_workers):
    server.reset(stalls_after=5, stalls_metrics=True)
    process = start(server.url, *AT_ONCE, "--workers", num_workers)
    wait_until(lambda: len(server.seen) == 12 and server.under_way == 7)
    wait_until(lambda: is_at_rest(process.pid))
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    code, report, errors = end_of(process, SOON)
    assert (code, errors) == (130, [])
    assert report["points"][0]["outcomes"] == {"interrupted": 7, "200": 5}


def test_an_interruption_while_the_server_says_no_counters_leaves_the_figures(server, start):
    server.reset(stalls_metrics=True)
    process = start(server.url, *AT_ONCE)
    wait_until(lambda: len(server.seen) == 12 and not server.under_way)
    wait_until(lambda: is_at_rest(process.pid))
    process.send_signal(signal.SIGINT)
    code, report, _ = end_of(process, SOON)
    assert (code, report["points"][0]["outcomes"]) == (130, {"200": 12})


@pytest.mark.parametrize(
    ("behaviour", "num_left", "line"),
    [
        ({"stalls_after": 5}, 7, "5 of 12 requests finished (12 sent) at rate inf; the figures"),
        ({"delay": FOREVER}, 12, "12 of 12 requests sent at rate inf, none finished; there are no"),
    ],
)
def test_an_interruption_is_said_above_true_figures(server, start, behaviour, num_left, line):
    server.reset(**behaviour)
    process = start(server.url, *AT_ONCE, form=())
    wait_until(lambda: (len(server.seen), server.under_way) == (12, num_left))
    wait_until(lambda: is_at_rest(process.pid))
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE)
    first, *rest = output.splitlines()
    assert (process.returncode, errors) == (130, "")
    assert first.startswith(f"Interrupted: {line}")
    rows = [one.split() for one in rest if one.startswith("   inf")]
    assert [row[:4] for row in rows[:1]] == ([["inf", "12", "5", "0"]] if num_left < 12 else [])
    assert bool(rest) == bool(rows)


def test_an_interruption_keeps_the_rates_before(server, start):
    process = start(server.url, "--rate", "inf,0.01", *AT_ONCE[2:])
    wait_until(lambda: len(server.seen) == 12 and not server.under_way)
    wait_until(lambda: is_at_rest(process.pid))
    process.send_signal(signal.SIGINT)
    code, report, _ = end_of(process)
    assert (code, report["is_interrupted"]) == (130, True)
    assert report["points"][0]["outcomes"] == {"200": 12}


def test_no_process_outlives_its_parent(server, start):
    server.reset(delay=FOREVER)
    process = start(server.url, *AT_ONCE, "--workers", 2)
    wait_until(lambda: len(server.seen) == 12)
    family = workers_of(process)
    assert len(family) == 2
    process.terminate()
    assert end_of(process) == (-signal.SIGTERM, None, [])
    wait_until(lambda: not any(is_running(one) for one in family))


def is_running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_a_killed_process_asked_is_counted_and_the_rest_remains(server, start):
    server.reset(delay=5.0)
    process = start(server.url, *AT_ONCE, "--workers", 2)
    wait_until(lambda: len(server.seen) == 12)
    workers_of(process)[0].kill()
    code, report, errors = end_of(process)
    assert (code, errors) == (1, [])
    assert report["points"][0]["num_sent"] == 6
    assert report["points"][0]["outcomes"]["client process lost"] == 6
