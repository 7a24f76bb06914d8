"""A process of its own in which a client's grammar is compiled for the first time.

Reads a line of settings, which it answers with `{}`, then one question a line, `{"grammar",
"seconds", "patience_seconds"}`, and answers each with `{"problem", "seconds", "num_bytes"}`: the
problem, "" for none, null where it was given up; the processor's time that it took; what it added
to a process. Each question has a child of its own, which takes no more than the seconds, the time
by the clock and the memory that it may, so no grammar can hold or crash this process or the server.
"""

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

TAG = re.compile(r"<\[\d+\]>")
SMALLEST = "start: /a/"
PLENTY_SECONDS = 60.0
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
MOST_FORCED = 16_384


class ByteTokens:
    """A vocabulary of the 256 bytes, an end of text, and one tag that stands for all."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256, 257)

    def __init__(self) -> None:
        self.tokens = [bytes([byte]) for byte in range(256)] + [b"<end>", b"<tag>"]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def problem_of(tokens: LLTokenizer, limits: LLParserLimits, grammar: str) -> str:
    matcher = LLMatcher(tokens, TAG.sub("<[257]>", grammar), log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher.get_error() or problem_of_size(len(matcher.compute_ff_bytes()))


def problem_of_size(num_forced: int) -> str:
    """Return what is wrong where so many bytes are the only way in which a text can begin."""
    if num_forced <= MOST_FORCED:
        return ""
    return (
        f"every matching text starts with the same {num_forced} bytes; the limit is {MOST_FORCED}"
    )


def address_space() -> int:
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[0]) * resource.getpagesize()


def allow(seconds: float, patience_seconds: float, memory_bytes: int) -> None:
    """Let this process compute and wait for so long, grow by so much, and open no file from now on.

    Without files, llguidance reads no tables for the back trace of a panic: those of Python's are
    more than the memory, and where that fails within a panic, it waits for itself without an end.
    """
    size = address_space() + memory_bytes
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, patience_seconds)


def write_problem(
    writer: int, find_problem: Callable[[], str], *bounds: *tuple[float, float, int]
) -> NoReturn:
    """Find a problem in the child and end it: with 0 where the problem has been written whole."""
    code = 1
    try:
        allow(*bounds)
        problem = find_problem()
        with open(writer, "w", encoding="utf-8") as pipe:
            pipe.write(problem)
        code = 0
    finally:
        os._exit(code)


def answered(
    find_problem: Callable[[], str], *bounds: *tuple[float, float, int]
) -> tuple[str | None, float, int]:
    """Return (problem, None where the child was ended; its seconds; its greatest size).

    A child that was ended from outside ends this process, too.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        write_problem(writer, find_problem, *bounds)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        problem = pipe.read()
    _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in FROM_OUTSIDE:
        sys.exit(f"the child was ended by signal {os.WTERMSIG(status)}")
    spent = usage.ru_utime + usage.ru_stime
    return problem if status == 0 else None, spent, usage.ru_maxrss << 10


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    os.nice(settings.pop("niceness"))
    memory_bytes = settings.pop("memory_bytes")
    tokens = LLTokenizer(TokenizerWrapper(ByteTokens()))
    find = partial(problem_of, tokens, LLParserLimits(**settings))
    _, _, least = answered(partial(find, SMALLEST), PLENTY_SECONDS, PLENTY_SECONDS, memory_bytes)
    say({})
    for line in sys.stdin:
        asked = json.loads(line)
        bounds = asked["seconds"], asked["patience_seconds"], memory_bytes
        problem, seconds, most = answered(partial(find, asked["grammar"]), *bounds)
        say({"problem": problem, "seconds": seconds, "num_bytes": max(0, most - least)})


if __name__ == "__main__":
    main()
