"""Token ids of the texts that tests run through random models."""

import numpy as np

from tests.reference.configs import CONFIGS, SEEDS, TEXT_LENGTHS


def random_texts(name: str) -> list[list[int]]:
    """One text for each of TEXT_LENGTHS, the same on every run."""
    generator = np.random.default_rng(SEEDS[name])
    vocab_size = CONFIGS[name]["vocab_size"]
    return [generator.integers(vocab_size, size=length).tolist() for length in TEXT_LENGTHS]
