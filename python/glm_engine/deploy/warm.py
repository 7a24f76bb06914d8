"""A server that is loaded before the first request comes: `glm serve` as a process."""

import re
import signal
import subprocess
import sys
import threading
import urllib.request
from typing import IO

from glm_engine.core.errors import ExitCode
from glm_engine.deploy.job import Job
from glm_engine.deploy.program import GLM, StageFailedError, environment_of, failure, log_event

READY = re.compile(r"^glm: serving (\S+) on http://\S+:(\d+)$")
HEALTH_SECONDS = 30
LAST_LINES_SECONDS = 10


class WarmServer:
    """One `glm serve` in a process group of its own; its standard error passes through."""

    passing: threading.Thread

    def __init__(self, job: Job) -> None:
        self.job = job
        self.process: subprocess.Popen[str] | None = None
        self.port: int | None = None
        self.is_ending = False
        self.has_spoken = threading.Event()
        self.last_line = ""

    def start(self) -> None:
        """Return once the server takes requests; raise its error line if it cannot start, and
        StageFailedError if it was told to end before."""
        address = ("--host", self.job.host, "--port", str(self.job.port))
        model = ("--model", self.job.source, "--served-model-name", self.job.model)
        process = self.process = subprocess.Popen(
            [*GLM, "serve", *model, *address, *self.job.engine_arguments()],
            stdin=subprocess.DEVNULL,
            env=environment_of("serve"),
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.passing = threading.Thread(
            target=self.pass_on, args=(process.stderr,), name="glm-serve", daemon=True
        )
        self.passing.start()
        if self.is_ending:
            self.drain()
        self.has_spoken.wait()
        if self.port is None:
            code = process.wait()
            if self.is_ending:
                raise StageFailedError(
                    "glm serve: stopped before it was ready", ExitCode.INTERRUPTED
                )
            raise failure("glm serve", code, self.last_line)

    def pass_on(self, lines: IO[str]) -> None:
        """Pass each line on, and note when the server is ready or ends."""
        for line in lines:
            sys.stderr.write(line)
            sys.stderr.flush()
            self.last_line = line.strip() or self.last_line
            ready = READY.match(line.rstrip("\n"))
            if ready:
                self.port = int(ready.group(2))
                self.has_spoken.set()
        self.has_spoken.set()

    def check_health(self) -> None:
        """Check that the server answers /readyz with 200."""
        url = f"http://127.0.0.1:{self.port}/readyz"
        try:
            with urllib.request.urlopen(url, timeout=HEALTH_SECONDS) as answer:
                status = answer.status
        except OSError as error:
            raise StageFailedError(f"{url}: {error}") from error
        log_event("server_ready", model=self.job.model, port=self.port, status=status)

    def drain(self) -> None:
        """Let the server finish its requests and then end, even if it is still starting."""
        self.is_ending = True
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the server's end and its last lines; return its exit code."""
        assert self.process is not None
        code = self.process.wait()
        self.passing.join(LAST_LINES_SECONDS)
        log_event("server_stopped", exit_code=code)
        return code
