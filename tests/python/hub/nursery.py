"""Runs `glm` again and again in processes of their own without importing it anew each time.

Each line of standard input is {"arguments", "out", "err", "environment", "limit"}: a fork runs the
command, with its streams in the files `out` and `err` and no file longer than `limit` bytes.
Standard output gets two lines for each: the process, and its exit status.
"""

import json
import os
import resource
import sys

from glm_engine import cli
from glm_engine.commands import pull as _command
from glm_engine.hub import pull as _pull
from glm_engine.hub import transfer


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


def run(arguments, out, err, environment, limit):
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY), number)
    os.environ.update(environment)
    transfer.LONG_DELAY = 0
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return cli.main(arguments)


if __name__ == "__main__":
    main()
