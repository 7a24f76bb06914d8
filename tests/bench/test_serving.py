"""The acceptance run of serving: threads of a process, figures, and one small run of both sides."""

import os
import threading
import time

import click
import pytest

from tools.bench.figures import Bound
from tools.bench.serving.__main__ import figures_of, parse_cores
from tools.bench.serving.sides import (
    READY,
    Cores,
    RunFailedError,
    at_server,
    in_engine,
    running_server,
)
from tools.bench.serving.threads import spent, thread_ids

CPU = ["--device", "cpu", "--threads", "1", "--max-seq", "128"]
SMALL = ["--requests", "6", "--prompts", "fixed:8", "--outputs", "fixed:5", "--seed", "1"]
BUSY_SECONDS, TICKS = 0.3, 0.03


def burn():
    until = time.thread_time() + BUSY_SECONDS
    while time.thread_time() < until:
        pass


def test_the_main_thread_and_the_others_are_told_apart():
    own, may_end = os.getpid(), threading.Event()
    before = spent(own)
    burn()
    between = spent(own)
    other = threading.Thread(target=lambda: (burn(), may_end.wait(30)))
    other.start()
    until = time.monotonic() + 20
    while (spent(own) - between).engine < BUSY_SECONDS - TICKS and time.monotonic() < until:
        time.sleep(0.01)
    used = spent(own) - between
    assert other.native_id in thread_ids(own)
    may_end.set()
    other.join()
    assert (between - before).http >= BUSY_SECONDS - TICKS
    assert used.engine >= BUSY_SECONDS - TICKS
    assert used.http < used.engine


def test_cores():
    here = sorted(os.sched_getaffinity(0))
    assert parse_cores(None) is None
    chosen = parse_cores(f"{here[0]}/{here[-1]}")
    assert chosen == Cores(frozenset({here[0]}), frozenset({here[-1]}))
    for text in (str(here[0]), f"{here[0]}/{here[-1] + 4096}"):
        with pytest.raises(click.BadParameter, match="is not ENGINE/HTTP"):
            parse_cores(text)


def point(rate, **changes):
    figures = {"output_tokens_per_second": rate, "client_cpu_share": 0.1, "ttft_ms": {"p50": 5.0}}
    return {**figures, "http_us_per_token": 60.0, "engine_us_per_token": 300.0, **changes}


def test_limits_are_kept_and_missed():
    def verdicts(servers, engines):
        rows = figures_of(servers, engines)
        return {one.name: one.is_kept for one in rows if one.bound is not Bound.NONE}

    good = verdicts([point(940.0), point(960.0), point(980.0)], [point(1000.0)])
    assert good == {"server over engine": True, "CPU of the HTTP thread": True}
    bad = verdicts([point(940.0, http_us_per_token=121.0)], [point(1000.0)])
    assert bad == {"server over engine": False, "CPU of the HTTP thread": False}


def test_the_line_of_a_ready_server():
    assert READY.search("glm: serving capitals on http://127.0.0.1:42\n")[1].endswith(":42")
    assert not READY.search("glm: loading")


def test_both_sides_answer_the_same_requests():
    server, engine = at_server(SMALL, CPU, None), in_engine(SMALL, CPU, None)
    for name in ("num_sent", "prompt_tokens", "output_tokens"):
        assert server[name] == engine[name] > 0
    assert server["http_us_per_token"] > 0
    assert server["engine_us_per_token"] > 0


def test_a_server_that_cannot_start_is_an_error():
    with (
        pytest.raises(RunFailedError, match="absent: neither a config"),
        running_server([*CPU, "--model", "absent"]),
    ):
        raise AssertionError("the server started")
