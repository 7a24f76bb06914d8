"""Sampling with every control, and the counter-based generator behind it.

Order: penalties, bias, mask, log-probabilities, temperature, min_p, top_k, top_p, Gumbel maximum.
The generator is Philox4x32-10 (Salmon et al., 2011), keyed by (seed, position, token).
"""

from dataclasses import dataclass

import numpy as np

from glm_engine.verify.drawing import Controls
from tests.reference.compare import log_softmax

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
NUM_ROUNDS = 10
WORD = 0xFFFFFFFF
DECIDED_MARGIN = 1e-5


@dataclass(frozen=True)
class History:
    """Per token of the vocabulary: how often it was put out, and whether the prompt has it."""

    output_counts: np.ndarray
    in_prompt: np.ndarray


@dataclass(frozen=True)
class Choice:
    """The sampled token, whether rounding cannot change it, and log-probabilities of all."""

    token: int
    is_decided: bool
    logprobs: np.ndarray


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds over four 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(NUM_ROUNDS):
        low, high = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (high >> 32) ^ c1 ^ k0, high & WORD, (low >> 32) ^ c3 ^ k1, low & WORD
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def random_word(seed: int, position: int, token: int) -> int:
    """The 32 random bits of one token at one position."""
    return philox((token >> 2, position, 0, 0), (seed & WORD, seed >> 32))[token & 3]


def uniform(word: int) -> float:
    """Strictly between 0 and 1, in the middle of one of 2³² equal intervals."""
    return (word + 0.5) / 2.0**32


def gumbel(seed: int, position: int, vocab_size: int) -> np.ndarray:
    words = [random_word(seed, position, token) for token in range(vocab_size)]
    return -np.log(-np.log(1 - np.array([uniform(word) for word in words])))


def penalised(logits: np.ndarray, controls: Controls, history: History) -> np.ndarray:
    """Repetition over prompt and output, then frequency and presence over the output."""
    seen = history.in_prompt | (history.output_counts > 0)
    penalty = controls.repetition_penalty
    repeated = np.where(logits > 0, logits / penalty, logits * penalty)
    result = np.where(seen, repeated, logits)
    result = result - controls.frequency_penalty * history.output_counts
    return result - controls.presence_penalty * (history.output_counts > 0)


def adjusted(logits: np.ndarray, controls: Controls, history: History) -> np.ndarray:
    """Logits after penalties, biases and mask; minus infinity where a token is not allowed."""
    result = penalised(np.asarray(logits, np.float64), controls, history)
    for token, bias in controls.biases.items():
        result[token] += bias
    if controls.allowed is not None:
        result = np.where(controls.allowed, result, -np.inf)
    return result


def keep_min_p(logits: np.ndarray, min_p: float) -> np.ndarray:
    """Tokens at least min_p times as likely as the likeliest."""
    return np.exp(logits - np.max(logits)) >= min_p


def keep_top_k(logits: np.ndarray, top_k: int) -> np.ndarray:
    """The top_k greatest and all ties of the last of them; 0 keeps all."""
    if top_k <= 0 or top_k >= len(logits):
        return np.ones(len(logits), dtype=bool)
    return logits >= np.sort(logits)[-top_k]


def keep_top_p(logits: np.ndarray, top_p: float) -> np.ndarray:
    """The fewest likeliest tokens that hold top_p of the probability, and ties of the last."""
    if top_p >= 1:
        return np.ones(len(logits), dtype=bool)
    falling = np.sort(logits)[::-1]
    probabilities = np.exp(log_softmax(falling))
    before = np.cumsum(probabilities) - probabilities
    needed = max(1, int(np.sum(before < top_p)))
    return logits >= falling[needed - 1]


def candidates(logits: np.ndarray, controls: Controls) -> np.ndarray:
    """Adjusted logits → logits / temperature, minus infinity outside min_p, top_k and top_p."""
    scaled = logits / controls.temperature
    kept = keep_min_p(scaled, controls.min_p) & keep_top_k(scaled, controls.top_k)
    scaled = np.where(kept, scaled, -np.inf)
    return np.where(keep_top_p(scaled, controls.top_p), scaled, -np.inf)


def is_ahead(scores: np.ndarray) -> bool:
    """Whether the best leads by more than rounding could change."""
    if len(scores) < 2:
        return True
    second, best = np.sort(scores)[-2:]
    return bool(best - second > DECIDED_MARGIN * max(1.0, abs(best)))


def sample(logits: np.ndarray, controls: Controls, history: History | None = None) -> Choice:
    """One row of logits [vocab_size] → the token, by falling back to the greatest at T = 0."""
    if history is None:
        size = len(logits)
        history = History(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool))
    final = adjusted(logits, controls, history)
    scores = final
    if controls.temperature > 0:
        noise = gumbel(controls.seed, controls.position, len(final))
        scores = candidates(final, controls) + noise
    return Choice(int(np.argmax(scores)), is_ahead(scores), log_softmax(final))
