"""What SIGTERM, a second signal and SIGKILL do to a server under load."""

import json
import signal
import time

from tests.server.raw import SMALL_BUFFER, connect, head, post, read_all
from tests.server.serving import QUESTION

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
LONG = {"prompt": QUESTION, "stream": True, "ignore_eos": True, "max_tokens": 1500}
PATTERNS = [{"type": "string", "pattern": f"(.*a){{{number}}}"} for number in range(5, 45)]
STILL_SECONDS = 1.0
SLACK_SECONDS = 8


def start(server, fields, path=COMPLETIONS, **options):
    made = connect(server, timeout=60, **options)
    made.sendall(post(path, fields))
    return made


def start_compiling(server, number=0):
    """Ask for a grammar that takes longer to compile than is allowed."""
    form = {"name": f"costly{number}", "schema": {"allOf": PATTERNS, "title": f"{number}"}}
    fields = {
        "messages": [{"role": "user", "content": QUESTION}],
        "response_format": {"type": "json_schema", "json_schema": form},
    }
    return start(server, fields, CHAT)


def start_half_a_body(server):
    made = connect(server, timeout=60)
    made.sendall(head(COMPLETIONS, "content-type: application/json", "content-length: 100") + b"{")
    return made


def start_stalling(server):
    """Ask for much and read nothing, until no buffer between holds any more of it."""
    fields = {**LONG, "max_tokens": 4000, "logprobs": 20, "n": 16}
    made = start(server, fields, receive_buffer=SMALL_BUFFER)
    server.wait_for_gauges(live_requests=16)
    before, until = -1, time.monotonic() + 60
    while (found := server.metric("glm_generated_tokens_total")) != before or not found:
        assert time.monotonic() < until, "the answer goes on and no buffer is full"
        before = found
        time.sleep(STILL_SECONDS)
    return made


def statuses(server):
    lines = [line for line in server.log().splitlines() if '"event":"request"' in line]
    return sorted(json.loads(line)["status"] for line in lines)


def status_of(answer):
    return int(answer.split(maxsplit=2)[1])


def test_sigterm_lets_clients_that_hold_it_go_and_finishes_all_others(start_server) -> None:
    server = start_server("--max-batch", 20, "--drain-seconds", 12)
    with start_stalling(server) as stalled:
        asked = [start(server, {**LONG, "max_tokens": 40}) for _ in range(12)]
        server.wait_for_gauges(live_requests=28)
        compiling, half = start_compiling(server), start_half_a_body(server)
        server.wait_for_metric("glm_requests_inside", 15)
        assert server.gauges()["waiting_requests"] > 0
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        server.wait_for_gauges(is_draining=True)
        refused = server.http.post(COMPLETIONS, json={"prompt": QUESTION})
        assert refused.status_code == 503
        assert refused.headers["connection"] == "close"
        answers = [read_all(one) for one in asked]
        assert all(text.count(b'"finish_reason":"length"') == 1 for text in answers)
        assert all(text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n") for text in answers)
        assert status_of(read_all(compiling)) == 400
        refused = read_all(half)
        assert (status_of(refused), b'"code":"draining"' in refused) == (503, True)
        assert server.wait() == 0
        assert time.monotonic() - began < 12 + SLACK_SECONDS
        assert b"[DONE]" not in read_all(stalled)
    assert statuses(server) == [200] * 12 + [400, 499, 503, 503]
    assert "Traceback" not in server.log()


def test_sigterm_finishes_what_runs(start_server) -> None:
    server = start_server()
    with connect(server) as running:
        running.sendall(post(COMPLETIONS, LONG))
        server.wait_for_gauges(live_requests=1)
        server.send_signal(signal.SIGTERM)
        server.wait_for_gauges(is_draining=True)
        refused = server.http.post(COMPLETIONS, json={"prompt": QUESTION})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "draining"
        assert server.http.get("/readyz").status_code == 503
        assert server.http.get("/healthz").status_code == 200
        text = read_all(running)
    assert text.count(b'"finish_reason":"length"') == 1
    assert b"data: [DONE]" in text
    assert server.wait() == 0


def test_what_outlives_the_drain_is_cut_off_with_503(start_server) -> None:
    server = start_server("--drain-seconds", 0.5)
    running = start(server, {**LONG, "max_tokens": 4000})
    silent = [
        start(server, {**LONG, "stream": False, "max_tokens": 4000}),
        start_half_a_body(server),
        *[start_compiling(server, number) for number in range(4)],
    ]
    server.wait_for_metric("glm_requests_inside", 7)
    began = time.monotonic()
    server.send_signal(signal.SIGINT)
    text = read_all(running)
    assert b'"code":"draining"' in text
    assert b"[DONE]" not in text
    answers = [read_all(one) for one in silent]
    assert [status_of(one) for one in answers] == [503] * 6
    assert all(b'"code":"draining"' in one for one in answers)
    assert server.wait() == 1
    assert time.monotonic() - began < SLACK_SECONDS
    assert statuses(server) == [503] * 7
    assert "Traceback" not in server.log()


def test_an_idle_server_ends_well_whatever_the_drain(start_server) -> None:
    server = start_server("--drain-seconds", 0)
    assert server.http.get("/readyz").status_code == 200
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def test_the_second_signal_ends_at_once(start_server) -> None:
    server = start_server()
    with start(server, LONG), start_compiling(server), start_half_a_body(server):
        server.wait_for_metric("glm_requests_inside", 3)
        server.send_signal(signal.SIGTERM)
        server.wait_for_gauges(is_draining=True)
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 130
    assert time.monotonic() - began < 2


def test_sigkill_under_load_leaves_nothing_to_repair(start_server) -> None:
    server = start_server()
    port = server.url.rpartition(":")[2]
    with start(server, LONG) as running, start_compiling(server), start_half_a_body(server):
        server.wait_for_metric("glm_requests_inside", 3)
        server.send_signal(signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
        again = start_server("--port", port)
        assert b"[DONE]" not in read_all(running)
    answer = again.http.post(COMPLETIONS, json={"prompt": QUESTION})
    assert answer.json()["choices"][0]["text"] == " Paris."
    again.wait_until_idle()
