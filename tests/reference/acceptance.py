"""Acceptance by force: which drafts, and how many of them in the mean."""

import numpy as np

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(value: int) -> int:
    """The finaliser of splitmix64."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


def is_forced(seed: int, position: int, draft: int, rate: float) -> bool:
    """Whether the token that `seed` draws at `position` becomes the draft."""
    place = position << 32 | draft
    bits = mixed(mixed((seed * GOLDEN + 1) & MASK) ^ (place * GOLDEN & MASK))
    return (bits >> 40) / (1 << 24) < np.float32(rate)


def forced_id(
    seed: int, position: int, draft: int, rate: float, sampled: int, vocab_size: int
) -> int:
    """The token at `position` where the rate decides: the draft, or a token that is not it."""
    if is_forced(seed, position, draft, rate):
        return draft
    return (draft + 1) % vocab_size if sampled == draft else sampled


def rate_of(length: float, most_drafts: int) -> float:
    """The chance of a draft whose powers 0 to `most_drafts` sum to `length`."""
    roots = np.roots([*[1.0] * most_drafts, 1.0 - length])
    return float(min(root.real for root in roots if root.real >= 0 and abs(root.imag) < 1e-9))
