"""The servers that are compared: how each is started, asked for its version, and ended."""

import json
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glm_engine.core.errors import GlmError
from tools.bench import processes
from tools.bench.processes import ROOT, child_environment

MODEL = "air"
ASK_SECONDS = 5


class PeerError(GlmError):
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
    try:
        with processes.running_server(
            words, log, lambda: url if lists_a_model(url) else None
        ) as server:
            yield server[1]
    except processes.CommandError as error:
        raise PeerError(f"{name}: {error}") from error


def lists_a_model(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/v1/models", timeout=ASK_SECONDS) as answer:
            return bool(json.load(answer)["data"])
    except (OSError, ValueError, KeyError):
        return False
