"""The prompts that both sides of a comparison continue: as many tokens each, all different."""

import json
from functools import cache

from tools.bench.processes import ROOT

CAPITALS = ROOT / "checkpoints" / "capitals"


def quiz(begin: int, entries: list[dict]) -> str:
    """Questions with answers about every country, from one of them on."""
    chosen = entries[begin:] + entries[:begin]
    return "".join(
        f"Q: What is the capital of {e['country']}?\nA: {e['capital']}.\n" for e in chosen
    )


@cache
def prompts(batch: int, num_tokens: int) -> list[list[int]]:
    """Token ids of `batch` quizzes that begin at different countries, `num_tokens` each."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(CAPITALS / "tokenizer.json"))
    entries = json.loads((CAPITALS / "countries.json").read_text(encoding="utf-8"))
    texts = [quiz(number * len(entries) // batch, entries) for number in range(batch)]
    rows = [tokenizer.encode(text).ids[:num_tokens] for text in texts]
    if any(len(row) != num_tokens for row in rows):
        raise ValueError(f"a quiz is shorter than {num_tokens} tokens")
    return rows
