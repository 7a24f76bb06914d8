"""Runs `glm` again and again in processes of their own without importing it anew each time.

Each line of standard input is {"arguments", "out", "err", "environment", "limit", "line_seconds"}:
a fork runs the command, with its streams in the files `out` and `err`, no file longer than `limit`
bytes and a line of progress every `line_seconds`.
Standard output gets two lines for each: the process, and its exit status.
"""

import json
import os
import resource
import sys

from glm_engine.cli import command_line
from glm_engine.commands import pull as _command
from glm_engine.core import console
from glm_engine.hub import pulling as _pull
from glm_engine.hub import transfer

NEVER = 3600


def main():
    assert _command
    assert _pull
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if process == 0:
            os._exit(run(**asked))
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(arguments, out, err, environment, limit, line_seconds):
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY), number)
    os.environ.update(environment)
    transfer.LONG_DELAY = 0
    console.LINE_SECONDS = line_seconds or NEVER
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return command_line.main(arguments)


if __name__ == "__main__":
    main()
