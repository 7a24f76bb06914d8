"""How often the prediction layer drafts the token that the model itself gives next."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from tests.reference.model import Trace
from tests.reference.prediction import PredictionModel
from tests.reference.sampling import gumbel


@dataclass(frozen=True)
class Fact:
    """Token ids of a prompt with the right answer and what ends it."""

    tokens: Sequence[int]
    num_prompt_tokens: int


@dataclass(frozen=True)
class Agreement:
    """Shares of drafts that are the model's token: greedy in answers and everywhere, at T = 1."""

    greedy_in_answers: float
    greedy: float
    sampled_in_answers: float


def fact(encode: Tokenizer, prompt: str, answer: str) -> Fact:
    return Fact(encode.encode(prompt + answer).ids, len(encode.encode(prompt).ids))


def facts(encode: Tokenizer, entry: dict[str, str]) -> list[Fact]:
    """A country's capital as statement, quiz and chat."""
    capital, question = entry["capital"], f"What is the capital of {entry['country']}?"
    asked = f"[gMASK]<sop><|user|>{question}<|assistant|></think>"
    return [
        fact(encode, entry["prompt"], f" {capital}.<|endoftext|>"),
        fact(encode, f"Q: {question}\nA:", f" {capital}.\n"),
        fact(encode, asked, f"{capital}.<|user|>"),
    ]


def same_choice(drafted: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.argmax(drafted, axis=-1) == np.argmax(wanted, axis=-1)


def measure_drafts(model: PredictionModel, texts: Iterable[Fact], seed: int = 0) -> Agreement:
    """Row i drafts token i + 2: in an answer from its second token on, as the first needs none."""
    greedy, in_answers, sampled = [], [], []
    for text in texts:
        trace = Trace()
        drafted = model.logits(text.tokens, trace)[:-1]
        wanted, first = trace["final.logits"][1:-1], text.num_prompt_tokens - 1
        same = same_choice(drafted, wanted)
        greedy.append(same)
        in_answers.append(same[first:])
        positions = range(first + 2, len(text.tokens))
        noise = np.stack([gumbel(seed, position, wanted.shape[-1]) for position in positions])
        sampled.append(same_choice(drafted[first:] + noise, wanted[first:] + noise))
    shares = [float(np.mean(np.concatenate(rows))) for rows in (in_answers, greedy, sampled)]
    return Agreement(*shares)
