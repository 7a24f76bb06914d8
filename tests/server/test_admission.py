"""The bounded queue, priority, ports, options."""

import os
import subprocess

import openai
import pytest

from tests.server.raw import connect, post, read_until
from tests.server.serving import (
    COMMAND,
    ENDLESS,
    ENVIRONMENT,
    MODEL,
    QUESTION,
    ROOT,
    START_SECONDS,
    device_options,
)

COMPLETIONS = "/v1/completions"


def test_a_full_queue_answers_429(start_server, endless_model) -> None:
    server = start_server(*endless_model, "--max-batch", 1, "--max-queue", 2)
    with server.openai() as client, pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=QUESTION, n=4)
    assert caught.value.param == "n"
    held = [connect(server) for _ in range(3)]
    held[0].sendall(post(COMPLETIONS, ENDLESS))
    server.wait_for_gauges(live_requests=1, waiting_requests=0)
    with server.openai() as client, pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model=MODEL, prompt=QUESTION, n=3, max_tokens=100)
    assert caught.value.code == "queue_full"
    assert int(caught.value.response.headers["retry-after"]) >= 1
    server.wait_for_gauges(live_requests=1)
    for number, one in enumerate(held[1:], 2):
        one.sendall(post(COMPLETIONS, ENDLESS))
        server.wait_for_gauges(live_requests=number)
    with server.openai() as client, pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model=MODEL, prompt=QUESTION)
    assert caught.value.code == "server_full"
    for one in held:
        one.close()
    server.wait_until_idle()
    with server.openai() as client:
        assert client.completions.create(model=MODEL, prompt=QUESTION).choices[0].text == " Paris."


def test_a_burst_may_fill_batch_and_queue(start_server) -> None:
    server = start_server("--max-batch", 1, "--max-queue", 2)
    with server.openai() as client:
        for _ in range(20):
            answer = client.completions.create(model=MODEL, prompt=QUESTION, n=3)
            assert [choice.text for choice in answer.choices] == [" Paris."] * 3


def test_priority_goes_first(start_server, endless_model) -> None:
    """Were the later one first, its endless answer would keep the sooner one from ever ending."""
    server = start_server(*endless_model, "--max-batch", 1, "--scheduling-policy", "priority")
    with connect(server) as later, connect(server) as sooner:
        with connect(server) as running:
            running.sendall(post(COMPLETIONS, ENDLESS))
            server.wait_for_gauges(live_requests=1)
            later.sendall(post(COMPLETIONS, {**ENDLESS, "priority": 1}))
            server.wait_for_gauges(live_requests=2)
            sooner.sendall(post(COMPLETIONS, {**ENDLESS, "max_tokens": 2, "priority": -1}))
            server.wait_for_gauges(live_requests=3)
        read_until(sooner, b"[DONE]")
        server.wait_for_gauges(live_requests=1)
        read_until(later, b"data: ")


def test_the_servers_own_deadline(start_server, endless_model) -> None:
    limited = start_server(*endless_model, "--request-timeout", 0.2)
    fields = {**ENDLESS, "stream": False, "timeout_seconds": 60}
    answer = limited.http.post(COMPLETIONS, json=fields)
    assert answer.status_code == 408
    assert answer.headers["x-should-retry"] == "false"


def run_serve(*arguments):
    return subprocess.run(
        [*COMMAND, *device_options(), *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )


def test_a_port_in_use_is_one_line(server) -> None:
    port = server.url.rpartition(":")[2]
    result = run_serve("--port", port)
    assert result.returncode == 2
    reason = "Address already in use; choose another port with --port"
    assert result.stderr == f"glm: cannot listen on 127.0.0.1:{port}: {reason}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--model", "/nowhere"), 2, "/nowhere"),
        (("--model", "x", "--synthetic", "y"), 2, "cannot be used together"),
        (("--host", "300.1.1.1"), 2, "cannot listen on 300.1.1.1"),
        (("--api-key-file", os.devnull), 2, "expected at least one API key"),
        (("--synthetic", "no-such-model"), 2, "no-such-model"),
    ],
)
def test_wrong_options_are_one_line(arguments, code, message) -> None:
    result = run_serve("--port", 0, *arguments)
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_random_weights_are_served_under_several_names(start_server) -> None:
    config = ROOT / "checkpoints" / "capitals" / "config.json"
    names = (
        "--served-model-name",
        "random",
        "--served-model-name",
        "other",
        "--served-model-name",
        "random",
    )
    server = start_server("--synthetic", config, "--layers", 2, *names)
    fields = {"prompt": [5, 6, 7], "max_tokens": 8, "extra_body": {"ignore_eos": True}}
    with server.openai() as client:
        for name in ("random", "other"):
            answer = client.completions.create(model=name, **fields)
            assert (answer.model, answer.usage.completion_tokens) == ("random", 8)
        assert [one.id for one in client.models.list()] == ["random", "other"]
        assert client.models.retrieve("other").root == "random"
        with pytest.raises(openai.NotFoundError, match=r"'third' .* models: 'random', 'other'"):
            client.completions.create(model="third", **fields)
    assert server.gauges()["model"] == "random"
