"""Decode steps, measured in the same way through each server's completions.

A step is the time of 144 generated tokens less that of 16, over 128: prefill, HTTP and the first
steps are in both and cancel. Prompts are fresh random tokens, so that no prefix cache helps.
"""

import json
import time
import urllib.error
import urllib.request
from random import Random
from typing import Any

from tools.bench.peers.servers import MODEL, PeerError

NUM_PROMPT, NUM_SHORT, NUM_MEASURED = 128, 16, 128
BATCHES = (1, 8, 16, 64, 128, 256)
MOST_IDS = 151_000
NUM_RUNS = 2
PATIENCE_SECONDS = 600


class Meter:
    """Sends batches of prompts to one server."""

    def __init__(self, url: str, num_ids: int, seed: int):
        self.url, self.num_ids, self.random = url, min(num_ids, MOST_IDS), Random(seed)

    def seconds(self, batch: int, num_tokens: int) -> float:
        """The time of a request for `num_tokens` more of each of `batch` fresh prompts."""
        prompts = [self.random.choices(range(self.num_ids), k=NUM_PROMPT) for _ in range(batch)]
        asked = {"model": MODEL, "prompt": prompts, "max_tokens": num_tokens}
        body = json.dumps({**asked, "temperature": 0, "ignore_eos": True}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/completions", body, headers)
        begin = time.perf_counter()
        usage = answer_of(request)["usage"]
        seconds = time.perf_counter() - begin
        if usage["completion_tokens"] != batch * num_tokens:
            found = usage["completion_tokens"]
            raise PeerError(f"expected {batch * num_tokens} tokens of {self.url}, got {found}")
        return seconds

    def best(self, batch: int, num_tokens: int) -> float:
        return min(self.seconds(batch, num_tokens) for _ in range(NUM_RUNS))

    def row(self, batch: int) -> dict[str, Any]:
        """The figures of one batch size; the first request warms up."""
        self.seconds(batch, NUM_SHORT)
        short = self.best(batch, NUM_SHORT)
        long = self.best(batch, NUM_SHORT + NUM_MEASURED)
        step = (long - short) / NUM_MEASURED
        return {
            "batch": batch,
            "step_ms": round(1e3 * step, 3),
            "decode_tok_s": round(batch / step, 1),
            "t_short_s": round(short, 4),
            "t_long_s": round(long, 4),
        }


def answer_of(request: urllib.request.Request) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            read: dict[str, Any] = json.load(answer)
            return read
    except urllib.error.HTTPError as error:
        text = error.read().decode("utf-8", "replace")[:500]
        raise PeerError(f"{request.full_url} answered {error.code}: {text}") from error
    except OSError as error:
        raise PeerError(f"{request.full_url} gave no answer: {error}") from error
