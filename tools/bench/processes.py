"""Child processes that answer in JSON lines: one measurement each, or a worker with many."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class WorkerError(Exception):
    """A child process ended before it answered."""


def child_environment(**variables: str) -> dict[str, str]:
    """This process's environment with this checkout's tools and Python in front."""
    paths = [str(ROOT), str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}


def start(module: str, *arguments: str, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=child_environment(**variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


class Worker:
    """A process that reads one JSON object a line and answers each with one."""

    def __init__(self, module: str, **variables: str):
        self.module = module
        self.process = start(module, **variables)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def ask(self, **question) -> dict:
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            status = self.process.wait(30)
            raise WorkerError(f"{self.module} ended with status {status} before it answered")
        return json.loads(answer)


def answer_all(answer) -> None:
    """The worker's side: answer(**question) for every line of standard input."""
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


def ask_once(module: str, *arguments: str, **variables: str) -> dict:
    """Run a module to its end and return the JSON object that it printed last."""
    process = start(module, *arguments, **variables)
    try:
        output, _ = process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode != 0:
        raise WorkerError(f"{module} ended with status {process.returncode}: {output[-2000:]}")
    return json.loads(output.splitlines()[-1])
