"""`glm batch`: the bodies of the server, each answer once, whatever ends the command."""

import json
import resource
import signal
import subprocess
import time
from collections import Counter

import psutil
import pytest

from tests.python.commands.running import CPU, ENVIRONMENT, GLM, ROOT, glm, glm_json, refused
from tests.server.serving import ServerProcess

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TALK = [{"role": "user", "content": "What is the capital of Austria?"}]
SCHEMA = {"type": "object", "properties": {"city": {"maxLength": 9}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
BODIES = {
    "greedy": (CHAT, {"messages": TALK, "temperature": 0}),
    "seeded": (CHAT, {"messages": TALK, "temperature": 1.5, "seed": 4, "n": 2, "logprobs": True}),
    "schema": (
        CHAT,
        {"messages": TALK, "seed": 1, "max_tokens": 40, "structured_outputs": {"json": SCHEMA}},
    ),
    "call": (
        CHAT,
        {"messages": TALK, "seed": 2, "max_tokens": 60, "tools": [TOOL], "tool_choice": "required"},
    ),
    "prompts": (COMPLETIONS, {"prompt": ["The capital of", "Wien"], "seed": 3, "logprobs": 2}),
    "wrong": (COMPLETIONS, {"prompt": "x", "temperature": 9}),
    "other model": (CHAT, {"messages": TALK, "model": "gpt-5"}),
}
NUM_LONG = 120
PATIENCE_SECONDS = 100


def write_requests(folder, bodies):
    path = folder / "requests.jsonl"
    rows = [
        {"custom_id": name, "method": "POST", "url": url, "body": body}
        for name, (url, body) in bodies.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, folder / "results.jsonl"


def long_requests(folder):
    body = {"prompt": "The capital of", "ignore_eos": True, "max_tokens": 100}
    bodies = {f"r{at}": (COMPLETIONS, {**body, "seed": at}) for at in range(NUM_LONG)}
    return write_requests(folder, bodies)


def results_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def started(paths, **options):
    command = [*GLM, "batch", *map(str, paths), *CPU, "--threads", "1", "--max-batch", "4"]
    return subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, **options
    )


def wait_for_results(path, least):
    until = time.monotonic() + PATIENCE_SECONDS
    while not path.exists() or path.read_bytes().count(b"\n") < least:
        assert time.monotonic() < until
        time.sleep(0.01)


def without_own(call):
    return {name: value for name, value in call.items() if name != "id"}


def told(body):
    """A body without what each answer has of its own: its id and time, the ids of calls."""
    made = {name: value for name, value in body.items() if name not in ("id", "created")}
    for choice in made.get("choices", ()):
        message = choice.get("message", {})
        if calls := message.get("tool_calls"):
            message["tool_calls"] = list(map(without_own, calls))
    return made


def test_bodies_are_those_of_the_server(tmp_path):
    paths = write_requests(tmp_path, BODIES)
    result = glm("batch", *paths, *CPU)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "glm: 7 answered, 2 of them with an error status\n"
    found = {one["custom_id"]: one for one in results_of(paths[1])}
    server = ServerProcess(tmp_path, *CPU)
    try:
        for name, (url, body) in BODIES.items():
            answer = server.http.post(url, json=body)
            response = found[name]["response"]
            assert response["status_code"] == answer.status_code
            assert told(response["body"]) == told(answer.json())
            assert found[name]["error"] is None
            assert response["request_id"]
    finally:
        server.stop()
    again = glm("batch", *paths, *CPU)
    assert again.stderr == f"glm: 7 of 7 requests have an answer in {paths[1]}\n"
    counts = {"requests": 7, "answered_before": 7, "answered": 0, "error_statuses": 0}
    assert glm_json("batch", *paths, *CPU) == counts


def test_a_killed_batch_goes_on_and_gives_each_answer_once(tmp_path):
    paths = long_requests(tmp_path)
    num_before = 0
    for least in (3, 25, 50):
        process = started(paths)
        wait_for_results(paths[1], least)
        process.kill()
        process.communicate()
        assert num_before < len(paths[1].read_bytes().splitlines()) < NUM_LONG
        num_before = paths[1].read_bytes().count(b"\n")
        with paths[1].open("ab") as file:
            file.write(b'{"id":"batch_req_12')
    process = started(paths)
    _, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, error
    assert error.startswith(f"glm: {num_before} of {NUM_LONG} requests have an answer in ")
    found = results_of(paths[1])
    assert Counter(one["custom_id"] for one in found) == {f"r{at}": 1 for at in range(NUM_LONG)}
    assert {one["response"]["status_code"] for one in found} == {200}
    fresh = tmp_path / "fresh.jsonl"
    assert glm("batch", paths[0], fresh, *CPU).returncode == 0
    texts = [
        {one["custom_id"]: one["response"]["body"]["choices"] for one in results_of(path)}
        for path in (paths[1], fresh)
    ]
    assert texts[0] == texts[1]


def test_ctrl_c_keeps_whole_results_and_leaves_no_process(tmp_path):
    paths = long_requests(tmp_path)
    process = started(paths)
    wait_for_results(paths[1], 5)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert error.strip() == "glm: interrupted"
    assert not [one for one in children if one.is_running()]
    found = results_of(paths[1])
    assert 5 <= len(found) < NUM_LONG
    assert {one["response"]["status_code"] for one in found} == {200}


def test_a_full_disk_is_one_clear_line(tmp_path):
    paths = long_requests(tmp_path)
    limit = 10_000

    def bound():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = started(paths, preexec_fn=bound)
    _, error = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    [line] = error.splitlines()
    assert line.startswith(f"glm: {paths[1]}: cannot write a result: File too large. The results")
    assert line.endswith("make room and run the command again")
    assert 0 < len(results_of_whole_lines(paths[1])) < NUM_LONG
    assert glm("batch", *paths, *CPU).returncode == 0
    assert len(results_of(paths[1])) == NUM_LONG


def results_of_whole_lines(path):
    whole, _, _ = path.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


@pytest.mark.parametrize("arguments", [("absent", "results"), ("requests.jsonl", "requests.jsonl")])
def test_what_the_command_refuses_in_one_line(tmp_path, arguments):
    write_requests(tmp_path, BODIES)
    line = refused("batch", *(tmp_path / one for one in arguments), *CPU)
    assert arguments[0] in line
