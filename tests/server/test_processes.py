"""The processes beside the server: those that render a template and those that compile grammars."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from glm_engine.cli.options import CAPITALS
from tests.server.serving import PATIENCE_SECONDS, QUESTION

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEMPLATE = "glm_engine.text.template_process"
KEY = "a-key-of-the-operator"
SECRETS = {
    "GLM_API_KEYS": KEY,
    "HF_TOKEN": "hf_secret",
    "MODAL_TOKEN_SECRET": "modal_secret",
    "ANYTHING_ELSE": "other_secret",
}
LONG = {"messages": [{"role": "user", "content": "é" * 45_000}]}
SHORT = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 3}
SLOW = (
    "{% if messages[0].content == 'slow' %}"
    + "{% for a in range(99999) %}" * 4
    + "{% endfor %}" * 4
    + "{% endif %}The capital of France is"
)
GUIDED = {"prompt": QUESTION, "max_tokens": 3, "guided_regex": "Par(is|ade)"}


def children(server, *words):
    """Return what the server has started, by words of command lines."""
    found = psutil.Process(server.process.pid).children()
    return [one for one in found if any(word in " ".join(one.cmdline()) for word in words)]


def linked_model(folder, template):
    folder.mkdir()
    for path in CAPITALS.iterdir():
        if path.name != "chat_template.jinja":
            os.symlink(path, folder / path.name)
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.fixture
def slow_server(start_server, tmp_path):
    """A server whose template takes all its time where the first message is `slow`."""
    return start_server("--model", linked_model(tmp_path / "model", SLOW))


def kill_while_it_renders(server):
    """End a process that renders, and wait for it."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (busy := [one for one in children(server, TEMPLATE) if computes(one)]):
        assert time.monotonic() < until
    busy[0].kill()
    psutil.wait_procs(busy[:1], PATIENCE_SECONDS)


def computes(process):
    """Say whether a process is at work, more than its start takes."""
    try:
        before = process.cpu_times().user
        time.sleep(0.1)
        return before > 0.1 and process.cpu_times().user > before
    except psutil.NoSuchProcess:
        return False


def test_a_template_process_that_is_killed_while_it_renders_is_replaced_once(slow_server) -> None:
    slow = {"messages": [{"role": "user", "content": "slow"}]}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(slow_server.http.post, CHAT, json=slow)
        kill_while_it_renders(slow_server)
        answer = asked.result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "template_error")
        asked = pool.submit(slow_server.http.post, CHAT, json=slow)
        kill_while_it_renders(slow_server)
        kill_while_it_renders(slow_server)
        answer = asked.result()
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] == "no_answer"
    assert "was killed" in answer.json()["error"]["message"]
    assert slow_server.http.post(CHAT, json=SHORT).status_code == 200


def test_an_idle_process_that_was_killed_is_replaced(start_server) -> None:
    server = start_server()
    assert server.http.post(CHAT, json={**SHORT, "guided_regex": "Paris"}).status_code == 200
    for one in children(server, TEMPLATE, "prover.py"):
        one.kill()
    assert server.http.post(CHAT, json={**SHORT, "guided_regex": "Rome"}).status_code == 200


@pytest.mark.parametrize(
    ("number_of_signals", "code"), [(1, 1), (2, 130)], ids=["drained", "at once"]
)
def test_a_template_process_that_reads_nothing_holds_no_end(
    start_server, number_of_signals, code
) -> None:
    """It is asked with more bytes than its pipe holds, of characters that may fit the context."""
    server = start_server("--drain-seconds", 0.5)
    stopped = children(server, TEMPLATE)
    for one in stopped:
        one.suspend()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.http.post, CHAT, json=LONG)
        server.wait_for_metric("glm_requests_inside", 1)
        for _ in range(number_of_signals):
            server.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        if number_of_signals == 1:
            assert asked.result().status_code == 503
        else:
            assert isinstance(asked.exception(), httpx.TransportError)
        assert server.process.wait(20) == code
    assert psutil.wait_procs(stopped, PATIENCE_SECONDS)[1] == []


def test_processes_beside_the_server_see_no_secret(start_server) -> None:
    server = start_server(environment=SECRETS)
    authorized = {"authorization": f"Bearer {KEY}"}
    assert server.http.post(COMPLETIONS, json=GUIDED, headers=authorized).status_code == 200
    found = children(server, TEMPLATE, "prover.py")
    assert len(found) >= 2
    for one in found:
        with open(f"/proc/{one.pid}/environ", "rb") as environment:
            content = environment.read()
        assert not [value for value in SECRETS.values() if value.encode() in content]
        assert sorted(os.listdir(f"/proc/{one.pid}/fd")) == ["0", "1", "2"]
