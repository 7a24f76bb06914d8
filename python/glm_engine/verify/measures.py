"""How far a device's answer is from the oracle's, and how far it may be."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Error = Callable[[np.ndarray, np.ndarray], float]


def row_errors(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Relative L2 error of each row of [rows, width], in float64."""
    exact = np.asarray(expected, np.float64)
    norms = np.linalg.norm(exact, axis=1)
    distances = np.linalg.norm(np.asarray(actual, np.float64) - exact, axis=1)
    distances = np.where(np.isfinite(distances), distances, np.inf)
    unmeasured = np.where(distances > 0, np.inf, 0.0)
    errors: np.ndarray = np.divide(distances, norms, out=unmeasured, where=norms > 0)
    return errors


def greatest_row(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(row_errors(actual, expected)))


def median_row(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.median(row_errors(actual, expected)))


def greatest_relative(actual: np.ndarray, expected: np.ndarray) -> float:
    return greatest_row(actual.reshape(-1, 1), expected.reshape(-1, 1))


def share(actual: np.ndarray, expected: np.ndarray) -> float:
    """The share of elements that differ."""
    return float(np.mean(actual != expected))


def share_but_one(actual: np.ndarray, expected: np.ndarray) -> float:
    """The share of elements that differ, one of them left out."""
    return max(int(np.count_nonzero(actual != expected)) - 1, 0) / actual.size


def share_of_rows(actual: np.ndarray, expected: np.ndarray) -> float:
    """The share of rows in which an element differs."""
    return float(np.mean(np.any(actual != expected, axis=1)))


@dataclass(frozen=True)
class Measure:
    """limit: where activations are BF16; float32_limit: where both devices have float32."""

    error: Error
    limit: float
    float32_limit: float


ROUNDED = Measure(greatest_row, 5e-3, 1e-4)
MEDIAN = Measure(median_row, 5e-3, 1e-4)
ONE_STEP = Measure(greatest_row, 5e-2, 5e-2)
FLOAT32 = Measure(greatest_row, 1e-4, 1e-4)
CODES = Measure(share_but_one, 1 / 500, 1 / 500)
SCALES = Measure(greatest_relative, 1e-5, 1e-5)
EXACT = Measure(share, 0.0, 0.0)
CHOICES = Measure(share_of_rows, 1e-2, 1e-2)


@dataclass(frozen=True)
class Answer:
    """What an operation gave for so many rows; the same call on the oracle gives its twin.

    part: which rows of the twin these are, where a rank has its own alone.
    """

    operation: str
    shape: str
    rows: int
    values: np.ndarray
    measure: Measure
    part: slice = field(default_factory=lambda: slice(None))


@dataclass(frozen=True)
class Finding:
    """An operation at a shape: the greatest error, at which number of rows; or why it has none."""

    operation: str
    shape: str
    rows: int
    error: float
    limit: float
    message: str | None = None

    @property
    def passed(self) -> bool:
        return self.message is None and self.error <= self.limit

    @property
    def severity(self) -> float:
        """What orders findings of one operation: their errors, in limits where there is one."""
        return self.error / (self.limit or 1.0)


def finding(actual: Answer, expected: Answer, in_float32: bool) -> Finding:
    """Compare an answer with the oracle's."""
    measure = actual.measure
    error = measure.error(actual.values, expected.values[actual.part])
    limit = measure.float32_limit if in_float32 else measure.limit
    return Finding(actual.operation, actual.shape, actual.rows, error, limit)
