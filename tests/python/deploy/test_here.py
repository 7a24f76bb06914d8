"""`glm deploy --local`: the bodies of the app's functions, run here against capitals."""

import json
import re
import shutil
import signal
import subprocess

import httpx
import pytest

from glm_engine.deploy.job import Job
from glm_engine.deploy.program import StageFailedError
from glm_engine.deploy.stages import PIPELINE
from glm_engine.deploy.warm import WarmServer
from tests.python.deploy.running import CAPITALS, DEPLOY, ENVIRONMENT, HERE, ROOT, deploy, events

PIPELINE_EVENTS = [
    "checkpoint",
    "libraries",
    "shards",
    "tokenizer",
    "plan",
    "engine_loaded",
    "golden",
    "smoke",
    "decode",
    "decode",
    "prefill",
]
READY = re.compile(r"^glm: serving capitals on (http://\S+)$")


def test_the_whole_pipeline_runs_here():
    done = deploy("benchmark", *HERE, "--batch", "1,2", "--prefill", "24")
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert list(reports) == [stage.name for stage in PIPELINE]
    logged = events(done.stderr)
    assert [one["event"] for one in logged] == PIPELINE_EVENTS
    found = {one["event"]: one for one in logged}
    files = sorted(CAPITALS.glob("*.safetensors"))
    assert found["shards"]["shards"] == len(files)
    assert found["shards"]["bytes"] == sum(file.stat().st_size for file in files)
    assert found["tokenizer"]["decoded"] == "The capital of France is"
    assert "<|user|>The capital of France is<|assistant|>" in found["tokenizer"]["prompt"]
    assert found["plan"]["fits"]
    assert found["plan"]["device"] == "cpu"
    assert found["engine_loaded"]["completion"] == " Paris"
    assert found["golden"]["num_asked"] == len(
        json.loads((CAPITALS / "countries.json").read_text())
    )
    assert found["golden"]["num_right"] == reports["validate"]["golden"]["num_right"]
    assert reports["smoke"]["completion"] == " Paris."
    assert [row["batch"] for row in reports["benchmark"]["decode"]] == [1, 2]
    assert reports["benchmark"]["prefill"][0]["tokens"] == 24


def test_a_checkpoint_that_is_cut_is_one_line(tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(CAPITALS, folder)
    shard = folder / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])
    done = deploy("validate", *HERE, "--only", "--model", folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert [one["event"] for one in events(done.stderr)] == ["shards"]
    _, line = done.stderr.splitlines()
    assert line.startswith(f"glm: {folder}: {shard.name}: ")
    assert "{" not in line


def test_the_server_is_warm_answers_and_finishes():
    command = [*DEPLOY, "serve", *HERE, "--only", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, **pipes) as process:
        try:
            lines, url = [], None
            for line in process.stderr:
                lines.append(line)
                url = url or next(iter(READY.findall(line.rstrip("\n"))), None)
                if '"server_ready"' in line:
                    break
            assert url, lines
            asked = {"prompt": "The capital of France is", "max_tokens": 4, "temperature": 0}
            answer = httpx.post(f"{url}/v1/completions", json=asked, timeout=60)
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
        finally:
            process.send_signal(signal.SIGTERM)
    assert answer.json()["choices"][0]["text"] == " Paris."
    assert answer.json()["model"] == "capitals"
    assert process.returncode == 0
    assert events(rest)[-1]["event"] == "server_stopped"
    assert events(rest)[-1]["exit_code"] == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/readyz", timeout=5)


def test_a_server_that_cannot_start_says_why():
    with pytest.raises(StageFailedError, match=r"^glm serve: absent: no such folder") as raised:
        WarmServer(Job("absent", device="cpu", host="127.0.0.1", port=0)).start()
    assert raised.value.exit_code == 2
