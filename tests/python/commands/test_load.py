"""`glm load`: against the prepared server, and in an engine on capitals."""

import json
import re
import subprocess
import time

import pytest

from glm_engine.cli.command_line import main
from glm_engine.cli.options import CAPITALS
from glm_engine.core import console
from tests.python.commands.running import CPU, ENVIRONMENT, GLM, ROOT, glm, glm_json, refused
from tests.python.load.serving import MODEL

SMALL = ["--requests", "6", "--prompts", "uniform:8:20", "--outputs", "fixed:5", "--seed", "3"]
NOBODY = "http://127.0.0.1:9"


def test_rates_are_measured_and_printed(server, tmp_path):
    server.reset(delay=0.02, gap=0.005)
    target = tmp_path / "reports" / "load.json"
    arguments = ["--rate", "50,inf", "--goodput", "ttft:9s,tpot:9s", "--output", target]
    result = glm("load", server.url, *SMALL, *arguments)
    assert result.returncode == 0, result.stderr
    assert "seed      3" in result.stdout
    report = json.loads(target.read_text())
    assert report["target"] == {"url": server.url, "model": MODEL, "endpoint": "completions"}
    assert [point["rate"] for point in report["points"]] == [50.0, None]
    for point in report["points"]:
        assert point["outcomes"] == {"200": 6}
        assert point["output_tokens"] == 30
        assert point["goodput"]["num_good"] == 6
        assert point["server"]["generated_tokens"] == 30
        assert point["ttft_ms"]["p50"] >= 20
    assert glm("load", "--show", target).stdout == result.stdout


@pytest.mark.parametrize("workers", [1, 2])
def test_gauges_of_a_server_come_with_the_rate_in_which_they_were_seen(server, workers):
    gauges = {"batch_occupancy": 0.5, "kv_utilisation": 0.25, "waiting_requests": 2}
    server.reset(gap=0.25, gauges=gauges)
    report = glm_json("load", server.url, *SMALL, "--rate", "90,95", "--workers", workers)
    assert len(report["points"]) == 2
    for point in report["points"]:
        assert point["gauges"]
        for row in point["gauges"]:
            assert 0 <= row.pop("seconds") <= point["duration_s"] + 0.5
            assert row == gauges


def test_the_engine_says_how_many_draft_tokens_it_accepted():
    asked = ["load", "--engine", *CPU, *SMALL, "--outputs", "fixed:120", "--warm-up", 0]
    [point] = glm_json(*asked, "--speculate", "lookup:2")["points"]
    found = point["server"]
    assert 0 < found["num_accepted_tokens"] <= found["num_draft_tokens"]
    assert 1 < found["mean_acceptance_length"] <= 3
    assert glm_json(*asked)["points"][0]["server"]["mean_acceptance_length"] is None


def test_the_engine_gets_the_requests_that_a_server_gets(server):
    server_report = glm_json("load", server.url, *SMALL, "--warm-up", 0)
    engine_report = glm_json("load", "--engine", *CPU, *SMALL, "--warm-up", 0)
    [at_server], [in_engine] = server_report["points"], engine_report["points"]
    prompts = [seen.body["prompt"] for seen in server.seen]
    assert sum(map(len, prompts)) == in_engine["prompt_tokens"] == at_server["prompt_tokens"]
    assert in_engine["output_tokens"] == in_engine["num_events"] == 30
    assert in_engine["outcomes"] == {"200": 6}
    assert in_engine["num_shorter"] == 0
    assert in_engine["ttft_ms"]["p50"] > 0
    assert in_engine["server"]["cpu_us_per_token"] > 0
    assert at_server["gauges"] is None
    shares = ("batch_occupancy", "kv_utilisation")
    assert all(0 <= row[share] <= 1 for row in in_engine["gauges"] for share in shares)


def test_chat_prompts_are_words_and_those_of_a_file_are_sent_as_they_are(server, tmp_path):
    glm_json("load", server.url, *SMALL, "--endpoint", "chat", "--warm-up", 0)
    texts = [seen.body["messages"][0]["content"] for seen in server.seen]
    assert all(text.replace(" ", "").isalpha() for text in texts)
    server.reset()
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "Hello", "max_tokens": 2}\n', "utf-8")
    arguments = ["--prompts", f"file:{path}", "--requests", 2, "--warm-up", 0]
    assert glm_json("load", server.url, *arguments)["points"][0]["output_tokens"] == 4
    assert {seen.body["prompt"] for seen in server.seen} == {"Hello"}


def test_names_of_vllms_benchmark_are_accepted(server):
    arguments = ["--base-url", f"{server.url}/v1", "--num-prompts", 3, "--rps", "90"]
    lengths = ["--random-input-len", 9, "--random-output-len", 4, "--max-concurrency", 2]
    names = ["--num-warmups", 1, "--served-model-name", MODEL, "--seed", 3, "--ignore-eos"]
    report = glm_json("load", *arguments, *lengths, *names)
    (point,) = report["points"]
    assert point["rate"] == 90.0
    assert (point["num_completed"], point["output_tokens"]) == (3, 12)
    assert [len(seen.body["prompt"]) for seen in server.seen] == [9] * 4
    assert report["workload"]["max_concurrency"] == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_load_in_a_pipe_shows_lines_of_progress(server, monkeypatch, capsys, workers):
    server.reset(gap=0.1)
    monkeypatch.setattr(console, "LINE_SECONDS", 0.02)
    assert main(["load", server.url, *SMALL, "--rate", "20", "--workers", str(workers)]) == 0
    lines = capsys.readouterr().err.splitlines()
    title, rest = (
        r"glm: requests at rate 20: [1-6] running, ",
        r"\d+\.\d\d/s, time left \d:\d\d:\d\d",
    )
    for form in (rf"{title}0 of 6 finished", rf"{title}[1-5] of 6 finished, {rest}"):
        assert any(re.fullmatch(form, line) for line in lines), lines


def test_refusals_are_counted_and_nothing_done_is_a_failure(server):
    server.reset(refuses_every=2)
    point = glm_json("load", server.url, *SMALL, "--warm-up", 0)["points"][0]
    assert point["outcomes"] == {"200": 3, "429": 3}
    server.reset(refuses_every=1, status=503)
    result = glm("load", server.url, *SMALL)
    assert result.returncode == 1
    assert "At rate inf, requests failed: 6 with 503" in result.stdout
    assert "503: not now" in result.stdout


def test_a_server_that_wants_a_key(server, monkeypatch):
    server.reset(api_key="secret")
    line = refused("load", server.url, *SMALL)
    way = "set GLM_API_KEY or use --api-key-file"
    assert line == f"glm: {server.url}: the server requires an API key: {way}\n"
    monkeypatch.setitem(ENVIRONMENT, "GLM_API_KEY", "wrong")
    line = refused("load", server.url, *SMALL)
    assert line == f"glm: {server.url}: the server rejected the API key in GLM_API_KEY\n"
    lines = glm("load", server.url, *SMALL, "--api-key", "wrong").stderr.splitlines()
    assert lines[-1] == f"glm: {server.url}: the server rejected the API key in --api-key"
    monkeypatch.setitem(ENVIRONMENT, "GLM_API_KEY", "secret")
    assert glm_json("load", server.url, *SMALL)["points"][0]["num_completed"] == 6


def test_a_key_in_a_file_wins_over_the_variable(server, monkeypatch, tmp_path):
    server.reset(api_key="secret")
    path = tmp_path / "key"
    path.write_text("secret\n")
    monkeypatch.setitem(ENVIRONMENT, "GLM_API_KEY", "another")
    made = glm_json("load", server.url, *SMALL, "--api-key-file", str(path))
    assert made["points"][0]["num_completed"] == 6
    path.write_text("another\n")
    line = refused("load", server.url, *SMALL, "--api-key-file", str(path))
    assert f"the server rejected the API key in {path}" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([NOBODY], f"{NOBODY}: cannot connect (connection refused); is the server running?"),
        (["nonsense"], "expected a URL, e.g. http://127.0.0.1:8000, got 'nonsense'"),
        (
            [NOBODY, "--prompts", "normal:5"],
            "--prompts: expected N, uniform:MIN:MAX or lognormal:",
        ),
        ([NOBODY, "--prompts", "file:absent.jsonl"], "absent.jsonl: cannot be read"),
        ([NOBODY, "--rate", "fast"], "--rate 'fast': expected numbers above 0 or inf, got 'fast'"),
        ([NOBODY, "--goodput", "ttft:soon"], "--goodput: expected ttft, tpot, e2e with durations"),
        ([NOBODY, "--requests", "5", "--seconds", "5"], "cannot be used together"),
        ([NOBODY, "--seconds", "5"], "--rate inf needs --requests"),
        (
            [NOBODY, "--threads", "2", "--layers", "1"],
            "only allowed with --engine: --layers, --threads",
        ),
        ([NOBODY, "--model", "x"], "only allowed with --engine: --model"),
        (["--engine", NOBODY], "--engine runs without a server; remove: URL"),
        (
            ["--engine", "--api-key-file", "x"],
            "--engine runs without a server; remove: --api-key-file",
        ),
        ([NOBODY, "--api-key-file", "absent"], "absent: cannot be read"),
        (["--engine", "--base-url", NOBODY], "--engine runs without a server; remove: --base-url"),
        ([NOBODY, "--base-url", NOBODY], "--base-url is given; remove: URL"),
        ([NOBODY, *CPU], "only allowed with --engine: --device"),
        ([NOBODY, "--rate", "1e-300"], "expected 1e-06 to 1e+09, or inf, got '1e-300'"),
        (
            [NOBODY, "--outputs", "fixed:2147483648"],
            "--outputs 'fixed:2147483648': expected at most 2,147,483,647",
        ),
        ([NOBODY, "--no-stream", "--goodput", "e2e:1s,tpot:1s"], "ttft and tpot need --stream"),
        (["http://a..b"], "'http://a..b': invalid URL"),
        (["--show", "absent.json"], "absent.json: cannot be read"),
        (["--engine", "--endpoint", "chat"], "--engine supports only --endpoint completions"),
        (["--engine", "--synthetic", "glm-4.7-fp8", "--model", "x"], "cannot be used together"),
        (["--engine", "--model", "absent"], "absent: no such folder"),
    ],
)
def test_bad_input_is_named(arguments, words, capsys):
    assert main(["load", *arguments]) == 2
    line = capsys.readouterr().err
    assert line.startswith("glm: ")
    assert words in line


def test_a_model_that_is_not_served(server):
    line = refused("load", server.url, "--served-model-name", "other")
    assert f"no model 'other'; available models: {MODEL}" in line


def test_chat_messages_for_an_engine(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n', "utf-8")
    arguments = ["--engine", *CPU, "--prompts", f"file:{path}", "--model", CAPITALS]
    assert "not chat messages" in refused("load", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--burstiness", "nan"],
        ["--burstiness", "1e-300"],
        ["--timeout", "nan"],
        ["--timeout", "inf"],
        ["--timeout", "99999999999"],
        ["--temperature", "nan"],
        ["--temperature", "inf"],
        ["--seconds", "nan"],
        ["--shared-prefix", "99999999999999"],
    ],
)
def test_numbers_that_nobody_means(arguments, capsys):
    assert main(["load", NOBODY, *arguments]) == 2
    assert f"Invalid value for '{arguments[0]}'" in capsys.readouterr().err


def test_more_requests_than_anyone_means(server):
    line = refused("load", server.url, "--requests", 2**31 - 1, "--warm-up", 0)
    assert "more than 1,000,000 requests at a rate of inf/s" in line


@pytest.mark.parametrize("models", [{"object": "list"}, {"data": None}, {"data": [{"id": 5}, 7]}])
def test_a_server_that_lists_no_model(server, models):
    server.reset(models=models)
    assert "/v1/models lists no model" in refused("load", server.url, code=1)
    assert "available models: none" in refused("load", server.url, "--served-model-name", MODEL)


def test_what_is_printed_and_written_does_not_depend_on_each_other(server, tmp_path):
    target = tmp_path / "load.json"
    command = [*GLM, "load", server.url, *SMALL, "--warm-up", "0", "--output", str(target)]
    load = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE)
    load.stdout.close()
    load.wait(120)
    assert json.loads(target.read_text())["points"][0]["num_completed"] == 6
    folder = tmp_path / "reports"
    server.reset(answers_from=7)
    command[-1] = str(folder / "load.json")
    load = subprocess.Popen(
        command,
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not server.seen:
        time.sleep(0.02)
    folder.rmdir()
    server.behaviour.answers_from = 0
    output, errors = load.communicate(timeout=120)
    assert load.returncode == 2
    assert "requests/s" in output
    assert errors.endswith("cannot be written: No such file or directory\n")
    assert errors.count("\n") == 1


def test_a_prompt_that_an_engine_refuses_is_counted(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": [100] * 60}, {"prompt": [100] * 5}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    arguments = ["--max-seq", 32, "--prompts", f"file:{path}", "--requests", 4, "--warm-up", 0]
    report = glm_json("load", "--engine", *CPU, *arguments, "--outputs", "fixed:3")
    assert report["points"][0]["outcomes"] == {"400": 2, "200": 2}
    assert "60" in report["points"][0]["messages"][0]


def test_as_many_files_are_open_as_the_system_allows(server):
    script = 'ulimit -Sn 64; exec "$@"'
    command = [*GLM, "load", server.url, "--requests", "100", "--warm-up", "0", "--json"]
    server.reset(answers_from=100)
    result = subprocess.run(
        ["bash", "-c", script, "bash", *command],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert json.loads(result.stdout)["points"][0]["outcomes"] == {"200": 100}
