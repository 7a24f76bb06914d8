"""The trained checkpoint and the texts that are compared on it."""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

CAPITALS = Path(__file__).parents[2] / "checkpoints" / "capitals"
NUM_SENTENCES = 14
QUIZ_LENGTHS = (2, 4, 7, 12)


def countries() -> list[dict[str, str]]:
    """Entries of country, capital and prompt."""
    return json.loads((CAPITALS / "countries.json").read_text(encoding="utf-8"))


def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CAPITALS / "tokenizer.json"))


def sentences() -> list[str]:
    """Prompts with their answers, from countries spread over the list."""
    entries = countries()
    chosen = entries[:: len(entries) // NUM_SENTENCES][:NUM_SENTENCES]
    return [f"{entry['prompt']} {entry['capital']}." for entry in chosen]


def quizzes() -> list[str]:
    """Longer texts: questions with answers, one after the other."""
    entries = countries()
    texts = []
    for number, length in enumerate(QUIZ_LENGTHS):
        chosen = entries[number :: len(entries) // length][:length]
        lines = (f"Q: What is the capital of {e['country']}?\nA: {e['capital']}.\n" for e in chosen)
        texts.append("".join(lines))
    return texts


def capital_texts() -> list[list[int]]:
    """Token ids of all texts that are compared, short and long."""
    encode = tokenizer()
    return [encode.encode(text).ids for text in (*sentences(), *quizzes())]


def prompts() -> list[Sequence[int]]:
    """Token ids of every country's prompt."""
    encode = tokenizer()
    return [encode.encode(entry["prompt"]).ids for entry in countries()]
