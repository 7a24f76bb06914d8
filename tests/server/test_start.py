"""What a server says when it starts, and of its throughput while there is work."""

import os
import pty
import re
import select
import subprocess
import time

import pytest

from glm_engine.server.http.logs import start_block
from tests.devices import device_kind
from tests.server.raw import connect, head, post, read_all, read_until
from tests.server.serving import (
    COMMAND,
    ENDLESS,
    ENVIRONMENT,
    PATIENCE_SECONDS,
    QUESTION,
    ROOT,
    device_options,
)

COMPLETIONS = "/v1/completions"
STATS = ("--log-stats-interval", 0.2)
GPUS = {
    "model": "glm-4.7",
    "device": "cuda",
    "device_name": "NVIDIA H100 80GB HBM3",
    "gpus": 4,
    "world_size": 4,
    "context_length": 131_072,
    "kv_cache_tokens": 1_500_000,
    "kv_cache_requests": 11,
    "speculate": "off",
    "num_prediction_layers": 0,
    "api": "http://127.0.0.1:8000/v1",
    "page": "http://127.0.0.1:8000/",
    "api_keys": 0,
    "api_keys_from": [],
}


class Terminal:
    """A server whose standard error is a terminal."""

    def __init__(self, *arguments, **environment):
        self.reader, writer = pty.openpty()
        self.process = subprocess.Popen(
            [*COMMAND, *device_options(), "--port", "0", *map(str, arguments)],
            cwd=ROOT,
            env={**ENVIRONMENT, "TERM": "xterm", "NO_COLOR": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writer,
        )
        os.close(writer)
        self.text = ""
        self.url = self.wait_for(r"serving \S+ on (http://\S+)")[1]

    def wait_for(self, pattern):
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < until, self.text
            if select.select([self.reader], [], [], 0.1)[0]:
                self.text += os.read(self.reader, 65536).decode()
        return found

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        os.close(self.reader)


@pytest.fixture
def start_terminal():
    started = []

    def start(*arguments, **environment):
        started.append(Terminal(*arguments, **environment))
        return started[-1]

    yield start
    for one in started:
        one.close()


def events(server, name):
    found = server.events()
    return [one for one in found if one["event"] == name]


def test_a_terminal_gets_text(start_terminal) -> None:
    terminal = start_terminal("--max-batch", 4, "--max-seq", 512, *STATS)
    terminal.wait_for(r"API keys +(\S+)")
    for row in (
        "Model           capitals",
        "Context length  512 tokens",
        "KV cache        2,048 tokens; requests at full context: 4",
        f"API             {terminal.url}/v1",
        f"Page            {terminal.url}/",
        "API keys        none",
    ):
        assert f"  {row}\r\n" in terminal.text
    with connect(terminal) as connection:
        connection.sendall(post(COMPLETIONS, {"prompt": QUESTION}))
        read_until(connection, b"}}")
        connection.sendall(head("/v1/%1b%5b31mred", method="PUT"))
        read_until(connection, b"}}")
    terminal.wait_for(r"Requests running: 0, waiting: 0, prompt: [\d.]+ tokens/s, generated: ")
    terminal.wait_for(rf'127.0.0.1:\d+ "POST {COMPLETIONS}" 200 .*prompt_tokens=5')
    terminal.wait_for(r'"PUT /v1/\\x1b\[31mred" 404 .*reason=\'Not Found\'')
    assert "{" not in terminal.text
    assert "\x1b[31mred" not in terminal.text


def test_a_terminal_gets_json_where_it_is_wanted(start_terminal) -> None:
    terminal = start_terminal("--log-format", "json")
    terminal.wait_for(r'\{.*"event":"serving".*\}')


def test_colours_follow_the_terminal(start_terminal) -> None:
    terminal = start_terminal("--api-key", "k", NO_COLOR="")
    terminal.wait_for("\x1b\\[[0-9;]*mother users on this machine")


def test_elsewhere_it_is_one_event(start_server) -> None:
    server = start_server("--max-batch", 4, "--max-seq", 512)
    server.wait_for_log('"event":"serving"')
    [event] = events(server, "serving")
    assert event["model"] == "capitals"
    assert event["device"] == device_kind()
    assert event["gpus"] == (0 if device_kind() == "cpu" else 1)
    assert event["context_length"] == 512
    assert event["kv_cache_tokens"] == 4 * 512
    assert event["kv_cache_requests"] == 4
    assert (event["speculate"], event["num_prediction_layers"]) == ("off", 0)
    assert event["api"] == f"{server.url}/v1"
    assert event["page"] == f"{server.url}/"
    assert server.http.get(event["page"]).status_code == 200


def test_text_elsewhere(start_server) -> None:
    server = start_server("--log-format", "text")
    server.wait_for_log("  Page ")
    server.http.get("/v1/nothing")
    server.wait_for_log('"GET /v1/nothing" 404')
    assert "{" not in server.log()


def test_gpus_are_numbered_and_named() -> None:
    lines = start_block(GPUS).splitlines()
    assert "  Device          CUDA" in lines
    assert "  GPUs            4 x NVIDIA H100 80GB HBM3" in lines
    assert "  KV cache        1,500,000 tokens; requests at full context: 11" in lines


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "off"),
        ({"speculate": "lookup:3"}, "lookup:3"),
        ({"speculate": "mtp", "num_prediction_layers": 1}, "mtp (prediction layer loaded)"),
        ({"speculate": "auto", "num_prediction_layers": 1}, "auto (prediction layer loaded)"),
        ({"speculate": "auto"}, "auto (no prediction layer)"),
    ],
)
def test_it_says_how_drafts_are_made(fields, text) -> None:
    assert f"  Speculate       {text}" in start_block(GPUS | fields).splitlines()


def test_ranks_of_a_cpu_are_counted() -> None:
    ranks = {"device": "cpu", "device_name": "CPU, Xeon", "gpus": 0, "world_size": 2}
    lines = start_block(GPUS | ranks).splitlines()
    assert "  Device          2 CPU ranks, Xeon" in lines
    assert "  GPUs            none" in lines
    lines = start_block(GPUS | ranks | {"world_size": 1}).splitlines()
    assert "  Device          CPU, Xeon" in lines


@pytest.mark.skipif(device_kind() != "cpu", reason="ranks of the CPU")
def test_ranks_of_a_cpu_are_told(start_server) -> None:
    server = start_server("--tp", 2, "--log-format", "text")
    server.wait_for_log("  Device          2 CPU ranks, ")


def test_api_keys_are_counted_and_their_sources_named(start_server, tmp_path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("one\ntwo\n")
    keys = {"GLM_API_KEY": "three", "GLM_API_KEYS": "four five"}
    server = start_server("--api-key-file", path, environment=keys)
    server.wait_for_log('"event":"serving"')
    [event] = events(server, "serving")
    assert event["api_keys"] == 5
    assert event["api_keys_from"] == ["GLM_API_KEY", str(path), "GLM_API_KEYS"]
    assert "process list" not in server.log()
    assert "  API keys        none" in start_block(GPUS).splitlines()
    shown = GPUS | {"api_keys": 1, "api_keys_from": ["GLM_API_KEY"]}
    assert "  API keys        1 (from GLM_API_KEY)" in start_block(shown).splitlines()


def test_throughput_is_told_while_there_is_work_and_not_before_or_after(
    start_server, endless_model
) -> None:
    server = start_server(*endless_model, "--max-batch", 1, *STATS)
    time.sleep(0.5)
    assert events(server, "throughput") == []
    with connect(server) as running, connect(server) as waiting:
        running.sendall(post(COMPLETIONS, ENDLESS))
        read_until(running, b"data: ")
        waiting.sendall(post(COMPLETIONS, ENDLESS))
        server.wait_for_gauges(waiting_requests=1)
        server.wait_for_log('"event":"throughput"', len(events(server, "throughput")) + 3)
    server.wait_until_idle()
    found = events(server, "throughput")
    busy = [one for one in found if (one["running"], one["waiting"]) == (1, 1)]
    assert max(one["prompt_tokens_per_second"] for one in found) > 0
    assert max(one["generated_tokens_per_second"] for one in busy) > 0
    assert 0 < max(one["kv_cache_usage_percent"] for one in busy) <= 100
    time.sleep(0.5)
    count = len(events(server, "throughput"))
    time.sleep(0.7)
    assert len(events(server, "throughput")) == count


def test_the_hit_rate_is_that_of_the_prefix_cache(start_server) -> None:
    server = start_server(*STATS)
    fields = {"prompt": [5] * 321, "max_tokens": 1}
    for _ in range(2):
        server.http.post(COMPLETIONS, json=fields).raise_for_status()
        time.sleep(0.5)
    rates = [one["prefix_cache_hit_rate_percent"] for one in events(server, "throughput")]
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(100 * 320 / 321, abs=0.1)


def test_draft_tokens_are_told_only_where_there_were_some(start_server) -> None:
    fields = {"prompt": [5, 6, 7, 8] * 40, "max_tokens": 200, "ignore_eos": True}
    found: list = []
    stated: list = []
    counts: list = []
    for options in ((), ("--speculate", "lookup:3"), ("--speculate", "mtp")):
        server = start_server(*options, *STATS)
        server.http.post(COMPLETIONS, json=fields).raise_for_status()
        time.sleep(0.5)
        found.append(
            [one for one in events(server, "throughput") if "mean_acceptance_length" in one]
        )
        [event], [request] = events(server, "serving"), events(server, "request")
        stated.append((event["speculate"], event["num_prediction_layers"]))
        counts.append((request.get("accepted_draft_tokens"), request.get("draft_tokens")))
    assert stated == [("off", 0), ("lookup:3", 0), ("mtp", 1)]
    assert counts[0] == (None, None)
    assert found[0] == []
    for lines, (accepted, drafted), most in zip(found[1:], counts[1:], (4, 2), strict=True):
        assert 0 <= accepted <= drafted
        assert drafted > 0
        assert lines
        assert all(1 <= one["mean_acceptance_length"] <= most for one in lines)
        assert all(0 <= one["draft_acceptance_rate_percent"] <= 100 for one in lines)


def test_throughput_can_be_turned_off(start_server) -> None:
    server = start_server("--log-stats-interval", 0)
    with connect(server) as connection:
        connection.sendall(post(COMPLETIONS, {"prompt": QUESTION}, "connection: close"))
        read_all(connection)
    time.sleep(0.3)
    assert events(server, "throughput") == []
