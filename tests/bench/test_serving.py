"""The acceptance run of serving: threads of a process, figures, and one small run of both sides."""

import os
import threading

import click
import pytest
from click.testing import CliRunner

from tools.bench.processes import CommandError
from tools.bench.serving import (
    READY,
    Cores,
    at_server,
    figures_of,
    in_engine,
    main,
    parse_cores,
    pin,
    running_server,
    thread_ids,
)

CPU = ["--device", "cpu", "--threads", "1", "--max-seq", "128"]
SMALL = ["--requests", "6", "--prompts", "fixed:8", "--outputs", "fixed:5", "--seed", "1"]


def test_threads_are_pinned_apart():
    here = os.sched_getaffinity(0)
    core, may_end = frozenset({min(here)}), threading.Event()
    other = threading.Thread(target=may_end.wait, args=(30,))
    other.start()
    pin(os.getpid(), frozenset(here), core)
    found = os.sched_getaffinity(other.native_id)
    assert other.native_id in thread_ids(os.getpid())
    pin(os.getpid(), frozenset(here), frozenset(here))
    may_end.set()
    other.join()
    assert (found, os.sched_getaffinity(0)) == (core, here)


def test_cores():
    here = sorted(os.sched_getaffinity(0))
    assert parse_cores(None) is None
    chosen = parse_cores(f"{here[0]}/{here[-1]}")
    assert chosen == Cores(frozenset({here[0]}), frozenset({here[-1]}))
    for text in (str(here[0]), f"{here[0]}/{here[-1] + 4096}", "a/b", "0/", ""):
        with pytest.raises(
            click.BadParameter, match="expected ENGINE/HTTP with cores of this machine"
        ):
            parse_cores(text)


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr("tools.bench.serving.at_server", None)
    result = CliRunner().invoke(main, ["--output", "/proc/absent"])
    assert result.exit_code == 2
    assert "/proc/absent: cannot be written" in result.output


def point(rate, http=60.0):
    figures = {"output_tokens_per_second": rate, "client_cpu_share": 0.1, "ttft_ms": {"p50": 5.0}}
    return {**figures, "server": {"http_cpu_us_per_token": http, "cpu_us_per_token": 300.0}}


def test_limits_are_kept_and_missed():
    def verdicts(servers, engines):
        rows = figures_of(servers, engines)
        return {one.name: one.is_kept for one in rows if one.limit is not None}

    good = verdicts([point(940.0), point(960.0), point(980.0)], [point(1000.0)])
    assert good == {"server over engine": True, "CPU of the HTTP thread": True}
    bad = verdicts([point(940.0, http=121.0)], [point(1000.0)])
    assert bad == {"server over engine": False, "CPU of the HTTP thread": False}


def test_the_line_of_a_ready_server():
    assert READY.search("glm: serving capitals on http://127.0.0.1:42\n")[1].endswith(":42")
    assert not READY.search("glm: loading")


def test_both_sides_answer_the_same_requests():
    server, engine = at_server(SMALL, CPU, None), in_engine(SMALL, CPU, None)
    for name in ("num_sent", "prompt_tokens", "output_tokens"):
        assert server[name] == engine[name] > 0
    costs = server["server"]
    assert 0 < costs["http_cpu_us_per_token"] < costs["cpu_us_per_token"]


def test_a_server_that_cannot_start_is_an_error():
    with (
        pytest.raises(CommandError, match="absent: no such folder"),
        running_server([*CPU, "--model", "absent"]),
    ):
        raise AssertionError("the server started")
