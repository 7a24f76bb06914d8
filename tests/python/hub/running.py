"""A nursery of `glm` processes that know the hub on the loopback, and what their cache holds."""

import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.python.commands.running import ENVIRONMENT, GLM, ROOT
from tests.python.hub.hub_server import git_digest

LINE_SECONDS = 120
OF_THE_HUB = re.compile("HF_|SSL_CERT_|GLM_MODEL")


@dataclass(frozen=True)
class Ended:
    """How a process ended: exit status (negative: a signal) and what it printed."""

    code: int
    out: str
    err: str

    def line(self):
        """The one line of a failure."""
        assert self.out == ""
        assert self.err.startswith("glm: ")
        assert self.err.count("\n") == 1
        return self.err


class Nursery:
    def __init__(self, endpoint, home, folder):
        self.home, self.out, self.err = home, folder / "process.out", folder / "process.err"
        hub = {"HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1"}
        paths = os.pathsep.join((ENVIRONMENT["PYTHONPATH"], str(ROOT)))
        kept = {name: ENVIRONMENT[name] for name in ENVIRONMENT if not OF_THE_HUB.match(name)}
        self.environment = {**kept, **hub, "SSL_CERT_DIR": str(folder), "PYTHONPATH": paths}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.python.hub.nursery"],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *arguments, limit=None, err=None, line_seconds=None, **environment):
        """Start a command and return its process id."""
        self.err.write_bytes(b"")
        streams = {"out": str(self.out), "err": str(err or self.err)}
        asked = {"arguments": arguments, "limit": limit, "environment": environment}
        asked["line_seconds"] = line_seconds
        self.process.stdin.write(json.dumps({**asked, **streams}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def wait(self):
        code = int(self.process.stdout.readline())
        return Ended(code, self.out.read_text(), self.err.read_text())

    def run(self, *arguments, **wanted):
        self.start(*arguments, **wanted)
        return self.wait()

    def drawn(self, *arguments):
        """Run a command whose standard error is a terminal; return what it drew there."""
        master, slave = os.openpty()
        drawn = bytearray()
        reader = threading.Thread(target=read_all, args=(master, drawn))
        reader.start()
        try:
            self.start(*arguments, err=os.ttyname(slave), TERM="xterm", COLUMNS="120")
            assert self.wait().code == 0
        finally:
            os.close(slave)
            reader.join()
            os.close(master)
        return drawn.decode()

    def pull(self, name, *arguments, **wanted):
        """Pull a model that must come; return the report."""
        ended = self.run("pull", name, "--json", *arguments, **wanted)
        assert (ended.code, ended.err) == (0, "")
        return json.loads(ended.out)

    def alone(self, *arguments, **environment):
        """Run a command in a process that imports everything itself, with other variables."""
        ended = subprocess.run(
            [*GLM, *arguments],
            cwd=ROOT,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=LINE_SECONDS,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def storage(self, name):
        return self.home / "hub" / f"models--{name.replace('/', '--')}"

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def read_all(terminal, drawn):
    """Read a terminal until its other side is closed everywhere."""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 4096):
            drawn += piece


def bytes_here(storage):
    """How many bytes a cache holds of a model, whole files and those to be gone on with."""
    return sum(path.stat().st_size for path in storage.glob("blobs/*"))


def assert_nothing_half_made(storage):
    """Each final name belongs to whole and right bytes; a record has all its files."""
    for path in storage.glob("blobs/*"):
        if not path.name.endswith(".incomplete"):
            content = path.read_bytes()
            assert path.name in (hashlib.sha256(content).hexdigest(), git_digest(content))
    for path in storage.glob("snapshots/*/*"):
        assert Path(path.resolve()).is_file()


def assert_pulled(report, repository):
    """A report's folder holds files of a repository byte for byte; return them."""
    folder = Path(report["folder"])
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found == {name: repository.files[name] for name in found}
    assert report["commit"] == folder.name == repository.commit
    assert report["num_files"] == len(found)
    assert report["total_bytes"] == sum(map(len, found.values()))
    return found
