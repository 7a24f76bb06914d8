"""What an engine's logits are compared with, and the comparison, for every golden test.

With PyTorch the expected logits are computed now by transformers, at every position.
Without it they come from tests/golden at one rank, and from the numpy model (which the
tests of tests/reference hold against transformers) at more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from tests.devices import is_rounded
from tests.reference.cases import kind_of, stored_positions, texts_of
from tests.reference.checkpoint import Checkpoint, read_checkpoint
from tests.reference.compare import Measured, assert_end_to_end
from tests.reference.golden import ONE_RANK, Split, has_pytorch, oracle_logits, stored_logits
from tests.reference.model import Options, ReferenceModel, Trace

BF16_ROUTE_MARGIN = 1e-3

Expected = Mapping[int, tuple[Sequence[int], np.ndarray]]


@cache
def cached_checkpoint(directory: Path) -> Checkpoint:
    return read_checkpoint(directory)


def numpy_logits(
    directory: Path, texts: Sequence[Sequence[int]], split: Split = ONE_RANK
) -> list[np.ndarray]:
    options = Options(world_size=split.world_size, expert_layout=split.expert_layout)
    return ReferenceModel(cached_checkpoint(directory), options).batch_logits(texts)


def nearest_logits(
    directory: Path, texts: Sequence[Sequence[int]], actual: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The numpy model's logits at the last positions of each text, as many as `actual` has."""
    model = ReferenceModel(cached_checkpoint(directory))
    return [nearest_rows(model, text, rows) for text, rows in zip(texts, actual, strict=True)]


def nearest_rows(
    model: ReferenceModel,
    text: Sequence[int],
    rows: np.ndarray,
    margin: float = BF16_ROUTE_MARGIN,
) -> np.ndarray:
    """A model's logits at the last positions of a text, as many as `rows` has.

    BF16 mathematics may choose the other expert where two scores nearly tie: a row whose scores are
    closer than `margin` counts as the nearer of both choices, so that it is compared as tightly.
    """
    trace, first = Trace(), len(text) - len(rows)
    expected = model.logits(text, trace)[first:]
    close = close_routes(trace, first, margin) if is_rounded() else []
    for layer, changed in passes(close, len(model.layers) - 1):
        other = model.logits(text, other_routes={layer: changed})
        for row in changed:
            both = (expected[row - first], other[row])
            expected[row - first] = min(both, key=partial(distance, rows[row - first]))
    return expected


def passes(close: Sequence[tuple[int, int]], last_layer: int) -> Iterator[tuple[int, list[int]]]:
    """(layer, rows) to change at once: rows of the last layer do not reach each other."""
    yield from ((layer, [row]) for layer, row in close if layer < last_layer)
    if last := [row for layer, row in close if layer == last_layer]:
        yield last_layer, last


def close_routes(trace: Trace, first: int, margin: float) -> list[tuple[int, int]]:
    """(layer, row) of each choice of experts from row `first` on whose scores nearly tie."""
    suffix = ".route_margins"
    return [
        (int(name.removesuffix(suffix).removeprefix("layers.")), int(row))
        for name in trace
        if name.endswith(suffix)
        for row in np.flatnonzero(trace[name] < margin)
        if row >= first
    ]


def distance(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(actual - expected))


@cache
def expected_logits(name: str, directory: Path, split: Split = ONE_RANK) -> Expected:
    """Text number → (positions, logits at them)."""
    texts = texts_of(name)
    if split == ONE_RANK and not has_pytorch():
        stored = stored_logits(name)
        return {key: (stored_positions(name, len(texts[key])), stored[key]) for key in stored}
    compute = oracle_logits if has_pytorch() else numpy_logits
    logits = compute(directory, texts, split)
    return {number: (range(len(array)), array) for number, array in enumerate(logits)}


def check_logits(
    logits_of: Callable[[Sequence[int]], np.ndarray],
    name: str,
    directory: Path,
    split: Split = ONE_RANK,
) -> Measured:
    """Runs logits_of (token ids → logits at every position) over a case's texts and compares."""
    texts, expected = texts_of(name), expected_logits(name, directory, split)
    actual, wanted = [], []
    for number, (positions, logits) in expected.items():
        computed = logits_of(texts[number])
        length = len(texts[number])
        assert computed.shape == (length, logits.shape[-1]), (
            f"{name} text {number}: logits of shape {computed.shape}, "
            f"expected {(length, logits.shape[-1])}"
        )
        actual.append(computed[list(positions)])
        wanted.append(logits)
    return assert_end_to_end(
        actual, wanted, kind_of(name, is_rounded()), f"{name} at {split.label}"
    )
