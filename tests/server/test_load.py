"""`glm load` against `glm serve` on capitals: lengths, counts, refusals, a death and a drain."""

import json
import signal
import subprocess

import pytest

from tests.python.commands.running import ENVIRONMENT, GLM, ROOT, glm, glm_json
from tests.server.raw import connect, post
from tests.server.serving import ENDLESS

SMALL = ["--requests", "12", "--prompts", "uniform:8:24", "--outputs", "uniform:3:9", "--seed", "5"]
EIGHT = ["--requests", "8", "--prompts", "fixed:8", "--warm-up", "0"]


@pytest.mark.parametrize("kind", [[], ["--no-stream"], ["--endpoint", "chat"]])
def test_every_answer_is_as_long_as_asked(server, kind):
    [point] = glm_json("load", server.url, *SMALL, "--rate", "60", *kind)["points"]
    assert point["outcomes"] == {"200": 12}
    assert point["num_shorter"] == 0
    assert point["server"]["generated_tokens"] == point["output_tokens"]
    assert point["server"]["prompt_tokens"] == point["prompt_tokens"]
    if not kind:
        assert point["num_events"] <= point["output_tokens"]
        assert point["ttft_ms"]["p50"] <= point["e2e_ms"]["p50"]
    server.wait_until_idle()


def test_a_shared_prefix_is_cached(server):
    arguments = ["--shared-prefix", "64", "--warm-up", "1"]
    [point] = glm_json("load", server.url, *SMALL, *arguments)["points"]
    assert point["cached_tokens"] == point["server"]["cached_prompt_tokens"]
    assert point["cached_tokens"] >= 12 * 48


DRAFTED = ["--requests", "4", "--prompts", "fixed:16", "--outputs", "fixed:160", "--seed", "5"]


def test_draft_tokens_are_counted_where_there_were_some(start_server, server, tmp_path):
    [plain] = glm_json("load", server.url, *DRAFTED)["points"]
    assert (plain["server"]["num_drafts"], plain["server"]["mean_acceptance_length"]) == (0, None)
    path = tmp_path / "load.json"
    text = glm("load", start_server("--speculate", "lookup:3").url, *DRAFTED, "--output", path)
    found = json.loads(path.read_text())["points"][0]["server"]
    assert 0 < found["num_accepted_tokens"] <= found["num_draft_tokens"] <= 3 * found["num_drafts"]
    length = 1 + found["num_accepted_tokens"] / found["num_drafts"]
    assert found["mean_acceptance_length"] == pytest.approx(length)
    assert "Speculative decoding" in text.stdout
    share = found["num_accepted_tokens"] / found["num_draft_tokens"]
    cells = ["inf", f"{found['num_drafts']:,.0f}", f"{found['num_draft_tokens']:,.0f}"]
    row = [*cells, f"{share:.1%}", f"{length:.2f}"]
    assert row in [line.split() for line in text.stdout.splitlines()]
    assert "Speculative decoding" not in glm("load", server.url, *DRAFTED).stdout


def test_a_context_that_is_too_short_is_all_that_is_said(start_server):
    server = start_server("--max-seq", "64")
    load = glm("load", server.url, *EIGHT, "--outputs", "100")
    assert load.returncode == 1
    reason = "requests refused because the context length is 64 tokens"
    first, advice, *messages = load.stdout.splitlines()
    assert first == f"At rate inf, {reason}: 8 of 8"
    assert advice.startswith("Lower --prompts and --outputs")
    assert all(line.startswith("  400: this model's maximum context") for line in messages)


def start_load(url, num_tokens):
    return subprocess.Popen(
        [*GLM, "load", url, *EIGHT, "--outputs", f"fixed:{num_tokens}", "--json"],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def point_of(load):
    output, errors = load.communicate(timeout=120)
    assert "Traceback" not in errors
    return json.loads(output)["points"][0], load.returncode


def test_a_full_queue_is_counted(start_server, endless_model):
    """One answer holds the batch until the queue has taken two and refused six."""
    server = start_server(*endless_model, "--max-batch", "1", "--max-queue", "2")
    with connect(server) as holding:
        holding.sendall(post("/v1/completions", ENDLESS))
        server.wait_for_gauges(live_requests=1)
        load = start_load(server.url, 3)
        server.wait_for_log('"status":429', 6)
    point, code = point_of(load)
    assert (point["outcomes"], code) == ({"200": 2, "429": 6}, 0)


def test_a_server_that_dies_is_counted(start_server, endless_model):
    server = start_server(*endless_model)
    load = start_load(server.url, ENDLESS["max_tokens"])
    server.wait_for_gauges(open_streams=8)
    server.send_signal(signal.SIGKILL)
    point, code = point_of(load)
    assert code == 1
    assert point["outcomes"] == {"connection lost": 8}
    assert point["server"] is None


def test_a_server_that_drains_finishes_what_runs(start_server, endless_model):
    """One answer holds the batch, so that all eight wait when the signal comes."""
    server = start_server(*endless_model, "--max-batch", "1")
    with connect(server) as holding:
        holding.sendall(post("/v1/completions", ENDLESS))
        server.wait_for_gauges(live_requests=1)
        load = start_load(server.url, 30)
        server.wait_for_gauges(live_requests=9)
        server.send_signal(signal.SIGTERM)
        server.wait_for_gauges(is_draining=True)
    point, code = point_of(load)
    assert (point["outcomes"], code) == ({"200": 8}, 0)
    assert server.wait() == 0
