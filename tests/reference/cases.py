"""Every checkpoint that golden tests run: the random configurations and capitals."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.reference.capitals import CAPITALS, capital_texts
from tests.reference.compare import Kind
from tests.reference.configs import (
    CONFIGS,
    SEEDS,
    TEXT_LENGTHS,
    WORLD_SIZES,
    is_quantised,
)
from tests.reference.models import write_model

CAPITALS_NAME = "capitals"
CASES = [*CONFIGS, CAPITALS_NAME]
LONG_TEXT = 13
CAPITALS_POSITIONS = 3


def random_texts(name: str) -> list[list[int]]:
    """One text for each of TEXT_LENGTHS, the same on every run."""
    generator = np.random.default_rng(SEEDS[name])
    vocab_size = CONFIGS[name]["vocab_size"]
    return [generator.integers(vocab_size, size=length).tolist() for length in TEXT_LENGTHS]


def texts_of(name: str) -> list[list[int]]:
    """Token ids of the texts that are compared."""
    return capital_texts() if name == CAPITALS_NAME else random_texts(name)


def world_sizes(name: str) -> Sequence[int]:
    """The numbers of ranks that a checkpoint splits over."""
    return (1, 2, 4, 8) if name == CAPITALS_NAME else WORLD_SIZES.get(name, (1,))


def case_is_quantised(name: str) -> bool:
    return name == CAPITALS_NAME or is_quantised(name)


def kind_of(name: str, is_rounded: bool = False) -> Kind:
    """The limits of end-to-end comparison in float32 mathematics, or in BF16 where rounded."""
    if name == CAPITALS_NAME:
        return Kind.CAPITALS_BF16 if is_rounded else Kind.CAPITALS_FLOAT32
    if is_quantised(name):
        return Kind.RANDOM_W8A8_BF16 if is_rounded else Kind.RANDOM_W8A8_FLOAT32
    return Kind.UNQUANTISED_BF16 if is_rounded else Kind.UNQUANTISED_FLOAT32


def case_path(name: str, directory: Path) -> Path:
    """The checkpoint on disk; random ones are written below directory."""
    return CAPITALS if name == CAPITALS_NAME else write_model(name, directory)


def stored_positions(name: str, length: int) -> list[int]:
    """The positions of a text whose logits are stored.

    Every one of a short text; of a long one every third, those about a page's edge and
    the last; of capitals, whose vocabulary is large, the last three.
    """
    if name == CAPITALS_NAME:
        return list(range(max(0, length - CAPITALS_POSITIONS), length))
    if length <= LONG_TEXT:
        return list(range(length))
    return sorted({*range(0, length, 3), 15, 16, 17, length - 1} & set(range(length)))
