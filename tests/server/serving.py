"""Starts `glm serve` as a process of its own and talks to it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai

from tests.devices import device_kind
from tests.endless import NUM_TOKENS

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
COMMAND = (sys.executable, "-m", "glm_engine", "serve")
DEVICES = {
    "cpu": ("--device", "cpu", "--threads", "1"),
    "futhark": ("--device", "futhark"),
    "cuda": ("--device", "cuda"),
}
READY = re.compile(r"^glm: serving (\S+) on (http://\S+)$", re.MULTILINE)
START_SECONDS = 120
PATIENCE_SECONDS = 8
QUESTION = "The capital of France is"
MODEL = "capitals"
ENDLESS = {"prompt": QUESTION, "stream": True, "ignore_eos": True, "max_tokens": NUM_TOKENS}


def device_options():
    """The options of the device that `pytest --device-kind` chose."""
    return DEVICES[device_kind()]


@contextmanager
def held_port():
    """Yield a port that nobody else is given: a server that asks for it by its number shares it
    with the socket that has bound it and does not listen."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


class ServerProcess:
    """A running `glm serve`, the checkout's unless `command` says another; it logs into a file."""

    def __init__(self, folder, *arguments, environment=None, command=COMMAND, cwd=ROOT):
        self.log_path = Path(folder) / "serve.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*command, *device_options(), "--port", "0", *map(str, arguments)],
                cwd=cwd,
                env={**ENVIRONMENT, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.model, self.url = self.wait_until_ready()
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_SECONDS)

    def wait_until_ready(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            found = READY.search(self.log())
            if found:
                return found.groups()
            assert self.process.poll() is None, self.log()
            time.sleep(0.02)
        raise TimeoutError(self.log())

    def log(self):
        return self.log_path.read_text(encoding="utf-8")

    def events(self):
        """The events of the log; a line that is still being written is left out."""
        whole, _, _ = self.log().rpartition("\n")
        return [json.loads(line) for line in whole.split("\n") if line.startswith("{")]

    def openai(self, **options):
        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            **{"api_key": "none", "max_retries": 0, "timeout": PATIENCE_SECONDS, **options},
        )

    def gauges(self):
        answer = self.http.get("/gauges")
        answer.raise_for_status()
        return answer.json()

    def wait_for_gauges(self, **wanted):
        """Wait until these gauges have these values, and return all gauges."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.gauges()
            wrong = {name: found[name] for name in wanted if found[name] != wanted[name]}
            if not wrong:
                return found
            assert time.monotonic() < until, f"{wrong}, expected {wanted}"
            time.sleep(0.01)

    def wait_for_log(self, text, least=1):
        """Wait until the log holds a text this many times."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.log().count(text) < least:
            assert time.monotonic() < until, f"{text} is not {least} times among\n{self.log()}"
            time.sleep(0.02)

    def metric(self, name):
        """Return the value of a metric that has no labels."""
        text = self.http.get("/metrics").text
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found, f"{name} is not among\n{text}"
        return float(found[1])

    def wait_for_metric(self, name, least):
        """Wait until a metric has at least this value."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (found := self.metric(name)) < least:
            assert time.monotonic() < until, f"{name} {found}, expected {least}"
            time.sleep(0.02)

    def wait_until_idle(self):
        """Wait until no request, no page and no stream is left."""
        found = self.wait_for_gauges(live_requests=0, waiting_requests=0, open_streams=0)
        assert found["free_pages"] + found["cached_pages"] == found["total_pages"]

    def send_signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(PATIENCE_SECONDS)

    def stop(self):
        """End the process; returns its exit code."""
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
