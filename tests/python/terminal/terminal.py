"""`glm chat` in a pseudo-terminal: keys go in, what a user would see comes out."""

import contextlib
import fcntl
import os
import re
import select
import signal
import subprocess
import termios
import time

from tests.python.commands.running import ENVIRONMENT, GLM, ROOT

ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][A-Z0-9]|[=>78])")
CHAT = (*GLM, "chat")
PATIENCE_SECONDS = 120
ENTER, CTRL_C, CTRL_D, TAB, ALT_ENTER, UP = "\r", "\x03", "\x04", "\t", "\x1b\r", "\x1b[A"


def take_terminal():
    """In the new process: its terminal's keys interrupt it, whatever its parent ignores."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A process whose standard streams are a terminal of its own, 24 rows of 100 columns."""

    def __init__(self, *arguments, program=CHAT, **environment):
        self.master, slave = os.openpty()
        termios.tcsetwinsize(slave, (24, 100))
        self.process = subprocess.Popen(
            [*program, *map(str, arguments)],
            cwd=ROOT,
            env={**ENVIRONMENT, "TERM": "xterm-256color", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(slave)
        self.raw = b""
        self.seen = 0

    @property
    def text(self):
        """All that came so far, without what only moves or colours."""
        return ESCAPE.sub(b"", self.raw).decode("utf-8", "replace").replace("\r", "")

    def read(self, seconds):
        """Read what is there, or comes in so many seconds; False at the end."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self.master, 65536)
        except OSError:
            piece = b""
        self.raw += piece
        return bool(piece)

    def wait_for(self, text):
        """Read until a text comes after the one that was waited for last; return what came."""
        until = time.monotonic() + PATIENCE_SECONDS
        while (at := self.text.find(text, self.seen)) < 0:
            is_open = self.read(0.1)
            came = self.text[self.seen :]
            assert is_open or text in came, f"{text!r} did not come before the end; {came!r} came"
            assert time.monotonic() < until, f"{text!r} did not come; {came!r} came"
        came, self.seen = self.text[self.seen : at], at + len(text)
        return came

    def press(self, keys):
        os.write(self.master, keys.encode("utf-8", "surrogateescape"))

    def say(self, line):
        """Type a line at the prompt, end it, and wait for the prompt after the answer."""
        self.press(line + ENTER)
        return self.wait_for("\n>>>")

    def end(self):
        """Read to the end; return the exit code."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.read(0.1):
            assert time.monotonic() < until, self.text
        return self.process.wait(PATIENCE_SECONDS)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)
        os.close(self.master)
