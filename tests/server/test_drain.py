"""What SIGTERM, a second signal and SIGKILL do to a server under load."""

import asyncio
import json
import os
import signal
import time
from types import SimpleNamespace

import pytest

from glm_engine.server.http.lifecycle import Server
from glm_engine.server.server_settings import Settings
from tests.server.raw import SMALL_BUFFER, connect, enter, read_all, read_until, send_half_a_body
from tests.server.serving import ENDLESS, PATIENCE_SECONDS, QUESTION, held_port

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
SHORT = {**ENDLESS, "max_tokens": 40}
PATTERNS = [{"type": "string", "pattern": f"(.*a){{{number}}}"} for number in range(5, 45)]
NUM_STALLING = 16
STILL_STEPS = 50
LONG_DRAIN_SECONDS = 10 * PATIENCE_SECONDS


def start(server, fields, path=COMPLETIONS, **options):
    """Send a request, and return when the server has let it in."""
    made, body = connect(server, **options), json.dumps(fields).encode()
    enter(made, path, len(body))
    made.sendall(body)
    return made


def start_compiling(server, number=0):
    """Ask for a grammar that takes longer to compile than is allowed."""
    schema = {"allOf": PATTERNS, "title": f"{number}"}
    form = {"name": f"costly{number}", "schema": schema, "strict": True}
    fields = {
        "messages": [{"role": "user", "content": QUESTION}],
        "response_format": {"type": "json_schema", "json_schema": form},
    }
    return start(server, fields, CHAT)


def start_half_a_body(server):
    made = connect(server)
    send_half_a_body(made, COMPLETIONS)
    return made


def start_stalling(server):
    """Ask for much and read nothing, until no buffer between holds any more of it."""
    fields = {**ENDLESS, "logprobs": 20, "n": NUM_STALLING}
    made = start(server, fields, receive_buffer=SMALL_BUFFER)
    server.wait_for_gauges(live_requests=NUM_STALLING)
    read_until(made, b"data: ")
    until = time.monotonic() + 2 * PATIENCE_SECONDS
    while not is_still(server):
        assert time.monotonic() < until, "the answer goes on and no buffer is full"
    return made


def is_still(server):
    """Say whether the engine makes steps and none of their tokens goes out."""
    sent, steps = (server.metric(f"glm_{name}_total") for name in ("generated_tokens", "steps"))
    server.wait_for_metric("glm_steps_total", steps + STILL_STEPS)
    return server.metric("glm_generated_tokens_total") == sent


def statuses(server):
    lines = [line for line in server.log().splitlines() if '"event":"request"' in line]
    return sorted(json.loads(line)["status"] for line in lines)


def status_of(answer):
    return int(answer.split(maxsplit=2)[1])


def test_sigterm_lets_clients_that_hold_it_go_and_finishes_all_others(
    start_server, endless_model
) -> None:
    """The stalled reader's choices take the whole batch: the others wait until it is let go."""
    options = ("--max-batch", NUM_STALLING, "--write-timeout", 10 * PATIENCE_SECONDS)
    server = start_server(*endless_model, *options, "--drain-seconds", 16)
    with start_stalling(server) as stalled:
        asked = [start(server, SHORT) for _ in range(12)]
        server.wait_for_gauges(live_requests=NUM_STALLING + 12)
        half = start_half_a_body(server)
        assert server.gauges()["waiting_requests"] > 0
        server.send_signal(signal.SIGTERM)
        server.wait_for_gauges(is_draining=True)
        refused = server.http.post(COMPLETIONS, json={"prompt": QUESTION})
        assert refused.status_code == 503
        assert refused.headers["connection"] == "close"
        answers = [read_all(one) for one in asked]
        assert all(text.count(b'"finish_reason":"length"') == 1 for text in answers)
        assert all(text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for text in answers)
        refused = read_all(half)
        assert (status_of(refused), b'"code":"draining"' in refused) == (503, True)
        assert server.wait() == 0
        assert b"[DONE]" not in read_all(stalled)
    assert statuses(server) == [200] * 12 + [499, 503, 503]
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGHUP, signal.SIGHUP)])
def test_a_first_signal_finishes_what_runs(start_server, endless_model, signals) -> None:
    """A terminal that closes sends SIGHUP twice: by its shell, and then by itself."""
    server = start_server(*endless_model, "--drain-seconds", LONG_DRAIN_SECONDS)
    running, compiling = start(server, {**ENDLESS, "max_tokens": 1000}), start_compiling(server)
    with start(server, ENDLESS) as holding:
        read_until(holding, b"data: ")
        for number in signals:
            server.send_signal(number)
            server.wait_for_gauges(is_draining=True)
        refused = server.http.post(COMPLETIONS, json={"prompt": QUESTION})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "draining"
        assert server.http.get("/readyz").status_code == 503
        assert server.http.get("/healthz").status_code == 200
    text = read_all(running)
    assert text.count(b'"finish_reason":"length"') == 1
    assert b"data: [DONE]" in text
    assert status_of(read_all(compiling)) == 400
    assert server.wait() == 0


def test_the_log_ends_with_the_drain(start_server, endless_model) -> None:
    server = start_server(*endless_model, "--drain-seconds", 0.5)
    with start(server, ENDLESS) as running:
        read_until(running, b"data: ")
        server.send_signal(signal.SIGTERM)
        read_all(running)
    assert server.wait() == 1
    events = server.events()
    [draining] = [one for one in events if one["event"] == "draining"]
    assert (draining["signal"], draining["running"], draining["seconds"]) == ("SIGTERM", 1, 0.5)
    assert (events[-1]["event"], events[-1]["exit_code"]) == ("stopped", 1)


def test_what_outlives_the_drain_is_cut_off_with_503(start_server, endless_model) -> None:
    """Grammars are compiled in turn: of four that are costly the last is never reached."""
    server = start_server(*endless_model, "--drain-seconds", 0.5)
    running = start(server, ENDLESS)
    silent = [start(server, {**ENDLESS, "stream": False}), start_half_a_body(server)]
    compiling = [start_compiling(server, number) for number in range(4)]
    server.send_signal(signal.SIGINT)
    text = read_all(running)
    assert b'"code":"draining"' in text
    assert b"[DONE]" not in text
    answers = [read_all(one) for one in (*silent, compiling[-1])]
    assert [status_of(one) for one in answers] == [503] * 3
    assert all(b'"code":"draining"' in one for one in answers)
    assert server.wait() == 1
    assert statuses(server) == [503] * 7
    assert "Traceback" not in server.log()


def test_an_idle_server_ends_well_whatever_the_drain(start_server) -> None:
    server = start_server("--drain-seconds", 0)
    assert server.http.get("/readyz").status_code == 200
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def test_the_second_signal_ends_at_once(start_server, endless_model) -> None:
    server = start_server(*endless_model, "--drain-seconds", LONG_DRAIN_SECONDS)
    with start(server, ENDLESS), start_compiling(server), start_half_a_body(server):
        server.send_signal(signal.SIGTERM)
        server.wait_for_gauges(is_draining=True)
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 130


@pytest.mark.parametrize("is_ignored", [True, False])
def test_a_hang_up_that_is_ignored_from_the_start_stays_so(is_ignored) -> None:
    server, taken, others = Server.__new__(Server), [], []
    server.take_signal = taken.append

    async def hang_up():
        with server.capture_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0)
            await asyncio.sleep(0.1)

    before = signal.SIG_IGN if is_ignored else lambda *_: others.append(signal.SIGHUP)
    previous = signal.signal(signal.SIGHUP, before)
    try:
        asyncio.run(hang_up())
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert (taken, others) == ([] if is_ignored else [signal.SIGHUP], [])


def test_a_drain_that_fails_ends_the_server_none_the_less() -> None:
    server = Server.__new__(Server)
    server.service = SimpleNamespace(settings=Settings(drain_seconds=0))
    server.config, server.should_exit = SimpleNamespace(), False
    with pytest.raises(AttributeError, match="admission"):
        asyncio.run(server.drain(signal.SIGTERM))
    assert server.should_exit


def test_sigkill_under_load_leaves_nothing_to_repair(start_server, endless_model) -> None:
    with held_port() as port:
        server = start_server(*endless_model, "--port", port)
        with start(server, ENDLESS) as running, start_compiling(server), start_half_a_body(server):
            server.send_signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
            again = start_server("--port", port)
            assert b"[DONE]" not in read_all(running)
    answer = again.http.post(COMPLETIONS, json={"prompt": QUESTION})
    assert answer.json()["choices"][0]["text"] == " Paris."
    again.wait_until_idle()
