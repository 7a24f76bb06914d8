"""The servers that are compared: how each is started, asked for its version, and ended."""

import json
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.bench.processes import ROOT, child_environment

MODEL = "air"
START_SECONDS, END_SECONDS, ASK_SECONDS = 1800, 120, 5


class PeerError(Exception):
    """A server could not be started, or did not do all that it was asked."""


@dataclass(frozen=True)
class Server:
    """Templates of command lines; the fields are python, checkpoint and port."""

    title: str
    start: str
    version: str


SERVERS = {
    "glm": Server(
        "glm-engine",
        "{python} -m glm_engine serve --model {checkpoint} --served-name air --port {port}"
        " --max-batch 256",
        "{python} -m glm_engine --version",
    ),
    "vllm": Server(
        "vLLM",
        "{python} -m vllm.entrypoints.openai.api_server --model {checkpoint}"
        " --served-model-name air --port {port} --max-num-seqs 256 --max-model-len 8192"
        " --dtype bfloat16",
        "{python} -c 'import vllm; print(vllm.__version__)'",
    ),
    "sglang": Server(
        "SGLang",
        "{python} -m sglang.launch_server --model-path {checkpoint} --served-model-name air"
        " --port {port} --max-running-requests 256 --context-length 8192 --dtype bfloat16",
        "{python} -c 'import sglang; print(sglang.__version__)'",
    ),
}


@dataclass(frozen=True)
class Place:
    """python: of the environment that has the engine; options: more words for its server."""

    checkpoint: Path
    port: int
    python: str = sys.executable
    options: Sequence[str] = ()

    def words(self, template: str) -> list[str]:
        fields = {"python": self.python, "checkpoint": self.checkpoint, "port": self.port}
        return [word.format_map(fields) for word in shlex.split(template)]


def version_of(name: str, place: Place) -> str:
    """What an engine calls its version; the last word of what it prints."""
    words = place.words(SERVERS[name].version)
    done = subprocess.run(words, cwd=ROOT, env=child_environment(), capture_output=True, text=True)
    if done.returncode != 0 or not done.stdout.split():
        raise PeerError(f"{name}: {shlex.join(words)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout.split()[-1]


@contextmanager
def running(name: str, place: Place, log: Path) -> Iterator[str]:
    """Start a server, yield its URL once it lists its model, and end it by SIGTERM."""
    url = f"http://127.0.0.1:{place.port}"
    if lists_a_model(url):
        raise PeerError(f"{name}: another server answers on {url}; choose another --port")
    words = [*place.words(SERVERS[name].start), *place.options]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            words, cwd=ROOT, env=child_environment(), stdout=sink, stderr=sink
        )
        try:
            wait_until_ready(name, process, url, log)
            yield url
        finally:
            end(process)


def wait_until_ready(name: str, process: subprocess.Popen, url: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while not lists_a_model(url):
        if process.poll() is not None or time.monotonic() > until:
            text = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise PeerError(f"{name}: the server is not ready; its log {log} ends with:\n{text}")
        time.sleep(0.2)


def lists_a_model(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=ASK_SECONDS) as answer:
            return bool(json.load(answer)["data"])
    except (OSError, ValueError, KeyError):
        return False


def end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
