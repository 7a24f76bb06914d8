"""A process of its own in which a client's grammar is compiled for the first time.

Reads one JSON text a line and answers each with its problem, "" for none, as JSON. It ends when
one takes too much of the processor's time, and its parent ends it when it does not answer, so no
grammar can hold or crash the server.
"""

import json
import os
import re
import resource
import signal
import sys

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

NICENESS = 10
TAG = re.compile(r"<\[\d+\]>")


class ByteTokens:
    """A vocabulary of the 256 bytes, an end of text, and one tag that stands for all."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids = (256, 257)

    def __init__(self):
        self.tokens = [bytes([byte]) for byte in range(256)] + [b"<end>", b"<tag>"]

    def __call__(self, text):
        return list(text.encode() if isinstance(text, str) else text)


def problem_of(tokens, grammar, limits):
    matcher = LLMatcher(tokens, TAG.sub("<[257]>", grammar), log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    return matcher.get_error()


def allow(seconds):
    """Let the process compute for so long from now on; the signal that comes then ends it."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def main():
    os.nice(NICENESS)
    settings = json.loads(sys.stdin.readline())
    size, seconds = settings.pop("memory_bytes"), settings.pop("seconds")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    tokens = LLTokenizer(TokenizerWrapper(ByteTokens()))
    limits = LLParserLimits(**settings)
    for line in sys.stdin:
        allow(seconds)
        problem = problem_of(tokens, json.loads(line), limits)
        sys.stdout.write(json.dumps(problem) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
