"""The three kinds of comparison and their tolerances, as tables."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

ROUTE_MARGIN = 1e-5


def relative_l2(actual: np.ndarray, expected: np.ndarray) -> float:
    """‖actual - expected‖ / ‖expected‖ over all elements; 0 for two empty arrays."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise AssertionError(f"shape {actual.shape}, expected {expected.shape}")
    difference, size = np.linalg.norm(actual - expected), np.linalg.norm(expected)
    if size == 0:
        return 0.0 if difference == 0 else float("inf")
    return float(difference / size)


def worst_row_l2(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative_l2 of any row (position)."""
    if np.shape(actual) != np.shape(expected):
        raise AssertionError(f"shape {np.shape(actual)}, expected {np.shape(expected)}")
    pairs = zip(actual, expected, strict=True)
    return max((relative_l2(*pair) for pair in pairs), default=0.0)


def relative_rms(actual: np.ndarray, expected: np.ndarray) -> float:
    """Root mean square of the difference over that of the expected, all positions together."""
    return relative_l2(actual, expected)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - np.max(shifted, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def divergence(actual: np.ndarray, expected: np.ndarray) -> float:
    """Mean over positions of KL(softmax(expected) ‖ softmax(actual)), in nats."""
    wanted, got = log_softmax(expected), log_softmax(actual)
    return float(np.mean(np.sum(np.exp(wanted) * (wanted - got), axis=-1)))


class Stage(Enum):
    FLOAT32 = 1e-5
    BF16 = 5e-3


@dataclass(frozen=True)
class EndToEnd:
    """Upper limits; None where the measure says nothing."""

    worst_row_l2: float | None = None
    mean_rms: float | None = None
    mean_divergence: float | None = None


class Kind(Enum):
    UNQUANTISED_FLOAT32 = EndToEnd(worst_row_l2=1e-4)
    UNQUANTISED_BF16 = EndToEnd(mean_rms=0.01)
    CAPITALS_FLOAT32 = EndToEnd(mean_rms=0.008, mean_divergence=3e-4)
    CAPITALS_DRAFTS_FLOAT32 = EndToEnd(mean_rms=0.015, mean_divergence=1e-4)
    CAPITALS_BF16 = EndToEnd(mean_rms=0.025, mean_divergence=3e-3)
    RANDOM_W8A8_FLOAT32 = EndToEnd(mean_rms=0.002)
    RANDOM_W8A8_BF16 = EndToEnd(mean_rms=0.012)


@dataclass(frozen=True)
class Measured:
    worst_row_l2: float
    mean_rms: float
    mean_divergence: float

    def failures(self, limits: EndToEnd) -> list[str]:
        """One line for each limit that is passed, and for each measure that is not finite."""
        lines = []
        for name in ("worst_row_l2", "mean_rms", "mean_divergence"):
            value, limit = getattr(self, name), getattr(limits, name)
            if limit is not None and not value <= limit:
                lines.append(f"{name} {value:.3g} above {limit:.3g}")
        return lines


def measure(actual: list[np.ndarray], expected: list[np.ndarray]) -> Measured:
    """Logits of several texts, each [positions, vocab_size]; means are over texts."""
    if len(actual) != len(expected) or not expected:
        raise AssertionError(f"{len(actual)} texts against {len(expected)} expected")
    pairs = list(zip(actual, expected, strict=True))
    return Measured(
        max(worst_row_l2(*pair) for pair in pairs),
        float(np.mean([relative_rms(*pair) for pair in pairs])),
        float(np.mean([divergence(*pair) for pair in pairs])),
    )


def assert_end_to_end(
    actual: list[np.ndarray], expected: list[np.ndarray], kind: Kind, where: str = ""
) -> Measured:
    measured = measure(actual, expected)
    failures = measured.failures(kind.value)
    assert not failures, f"{where} {kind.name}: {'; '.join(failures)}"
    return measured


def assert_stage(
    actual: np.ndarray, expected: np.ndarray, stage: Stage = Stage.FLOAT32, where: str = ""
) -> None:
    error = relative_l2(actual, expected)
    assert error <= stage.value, f"{where}: relative L2 {error:.3g} above {stage.value:.3g}"


def route_differences(
    actual_experts: np.ndarray, expected_experts: np.ndarray, margins: np.ndarray
) -> list[str]:
    """Tokens whose set of experts differs although the margin exceeds ROUTE_MARGIN."""
    lines = []
    for token, margin in enumerate(margins):
        actual, expected = set(actual_experts[token]), set(expected_experts[token])
        if margin > ROUTE_MARGIN and actual != expected:
            lines.append(f"token {token}: {sorted(actual)}, expected {sorted(expected)}")
    return lines


def assert_routes(
    actual_experts: np.ndarray,
    expected_experts: np.ndarray,
    margins: np.ndarray,
    where: str = "",
) -> None:
    differences = route_differences(actual_experts, expected_experts, margins)
    assert not differences, f"{where}: {'; '.join(differences)}"
