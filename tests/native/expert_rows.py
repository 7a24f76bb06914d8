"""What a device may answer for the experts of a layer, row by row.

The hidden row of an FP8 expert is quantised again. A device computes it from products whose sums
are a little off, so a hidden value that lies beside the border between two E4M3 codes may get the
code on the other side, and then its whole column of `down` moves the output by one step. Such a
row is off by more than `tolerance`, yet nothing is wrong with it.

`expected_rows` computes the rows in float64 and lists, for each of them, the steps that a hidden
value beside a border may take: its direction, its size (code step x scale of the row x column of
`down` x routing weight) and its place are known. `assert_rows` takes from the difference those
steps that make it smaller and demands that the rest stays within `tolerance` of the row's norm.
Nothing but whole steps of listed values is forgiven.

How near "beside" is follows from the relative L2 error of the two products that make the hidden
row: TENSOR_CORE_ERROR where the tensor core's sums go to float32 every 128 of K (measured on one
H200), FLOAT32_ERROR in float32. A value of such a product is off by that share of the root mean
square of its row; DEVIATIONS of it are allowed, and SwiGLU and the row's scale pass them on.

oracle.md limits the relative L2 of all rows together. Rows without FP8 keep that limit here, and
the stages of the golden models keep it in test_golden_stages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8
from tests import shapes
from tests.native import calls
from tests.reference import fp8
from tests.reference.compare import relative_l2
from tests.reference.experts import silu
from tests.reference.linear import through_fp8

TENSOR_CORE_ERROR = 1.3e-4
FLOAT32_ERROR = 1e-6
DEVIATIONS = 6.0


@dataclass(frozen=True)
class ExactStack:
    """The float64 values that the weights of experts stand for."""

    exact_gate_up: list[np.ndarray]
    exact_down: list[np.ndarray]


@dataclass(frozen=True)
class Step:
    """Row `token` of the output may be off by `size` times `column`."""

    token: int
    size: float
    column: np.ndarray


@dataclass(frozen=True)
class ExpectedRows:
    """values [tokens, hidden] in float64; steps is None where nothing is quantised."""

    values: np.ndarray
    steps: Sequence[Step] | None

    def plus(self, initial: np.ndarray) -> "ExpectedRows":
        return replace(self, values=self.values + initial)

    def first(self, count: int) -> "ExpectedRows":
        steps = self.steps and [step for step in self.steps if step.token < count]
        return ExpectedRows(self.values[:count], steps)

    def as_answered(self, rows: np.ndarray) -> "ExpectedRows":
        """Expected of one implementation beside another's rows: either may have taken a step."""
        if self.steps is None:
            return ExpectedRows(rows, None)
        back = [replace(step, size=-step.size) for step in self.steps]
        return ExpectedRows(rows, [*self.steps, *back])

    def moves_of(self, token: int) -> np.ndarray:
        moves = [step.size * step.column for step in self.steps or () if step.token == token]
        return np.array(moves).reshape(len(moves), self.values.shape[1])


@dataclass(frozen=True)
class Hidden:
    """Hidden rows of one expert and how far a device's may be from them."""

    values: np.ndarray
    error: np.ndarray

    def scale(self) -> np.ndarray:
        return fp8.token_scales(self.values).astype(np.float64)

    def quotient_errors(self) -> np.ndarray:
        """How far the device's values over its scale may be from these over theirs."""
        largest = np.max(np.abs(self.values), axis=1, keepdims=True)
        at_largest = np.max(
            np.where(np.abs(self.values) == largest, self.error, 0), axis=1, keepdims=True
        )
        relative = at_largest / np.maximum(largest, np.finfo(np.float64).tiny)
        return (self.error + np.abs(self.values) * relative) / self.scale()


def product_error(device) -> float:
    in_float32 = device.activation_type == np.float32
    return FLOAT32_ERROR if in_float32 else TENSOR_CORE_ERROR


def exact_stack(gate_up: np.ndarray, down: np.ndarray, dtype: int) -> ExactStack:
    return ExactStack(
        *([calls.stored(each, dtype)[2] for each in part] for part in (gate_up, down))
    )


def root_mean_square(rows: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(rows**2, axis=1, keepdims=True))


def slope_of_silu(values: np.ndarray) -> np.ndarray:
    sigmoid = 1.0 / (1.0 + np.exp(-values))
    return sigmoid * (1.0 + values * (1.0 - sigmoid))


def hidden_of(gate: np.ndarray, up: np.ndarray, product_error: float) -> Hidden:
    spread = DEVIATIONS * product_error
    from_gate = np.abs(slope_of_silu(gate) * up) * root_mean_square(gate)
    from_up = np.abs(silu(gate)) * root_mean_square(up)
    return Hidden(silu(gate) * up, spread * (from_gate + from_up))


def steps_across_borders(hidden: Hidden) -> np.ndarray:
    """What each hidden value may be off by after quantisation: 0 but beside a border."""
    quotients = hidden.values / hidden.scale()
    magnitudes = np.abs(quotients)
    above = np.clip(np.searchsorted(fp8.MIDPOINTS, magnitudes), 0, len(fp8.MIDPOINTS) - 1)
    below = np.maximum(above - 1, 0)
    nearer_below = magnitudes - fp8.MIDPOINTS[below] < fp8.MIDPOINTS[above] - magnitudes
    border = np.where(nearer_below, below, above)
    lower, upper = fp8.MAGNITUDES[border], fp8.MAGNITUDES[border + 1]
    codes, _ = fp8.quantise_per_token(hidden.values)
    other = lower + upper - np.abs(fp8.decode(codes))
    beside = np.abs(magnitudes - fp8.MIDPOINTS[border]) <= hidden.quotient_errors()
    change = np.sign(quotients) * (other - np.abs(fp8.decode(codes))) * hidden.scale()
    return np.where(beside, change, 0.0)


def expected_rows(
    stack: ExactStack | calls.ExpertStack,
    values: np.ndarray,
    ids: np.ndarray,
    weights: np.ndarray,
    dtype: int,
    product_error: float,
    begin: int = 0,
) -> ExpectedRows:
    """The rows without `initial`; expert 0 of the stack has the id `begin`."""
    quantised = dtype == FP8
    rows = np.asarray(values, np.float64)
    inputs = through_fp8(rows) if quantised else rows
    outputs, steps = np.zeros_like(rows), []
    for number, (gate_up, down) in enumerate(
        zip(stack.exact_gate_up, stack.exact_down, strict=True)
    ):
        tokens, choices = np.nonzero(np.asarray(ids) == begin + number)
        if not len(tokens):
            continue
        gate, up = np.split(inputs[tokens] @ gate_up.T, 2, axis=1)
        hidden = hidden_of(gate, up, product_error)
        shares = np.asarray(weights, np.float64)[tokens, choices]
        given = through_fp8(hidden.values) if quantised else hidden.values
        np.add.at(outputs, tokens, shares[:, None] * (given @ down.T))
        if quantised:
            moves = shares[:, None] * steps_across_borders(hidden)
            steps += [
                Step(int(tokens[row]), float(moves[row, channel]), down[:, channel])
                for row, channel in np.argwhere(moves)
            ]
    return ExpectedRows(outputs, steps if quantised else None)


def unexplained(difference: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """What is left of a difference after those moves, each once, that make it smaller."""
    rest, sizes = difference, np.sum(moves**2, axis=1)
    for _ in moves:
        change = sizes - 2 * (moves @ rest)
        best = int(np.argmin(change))
        if not change[best] < 0:
            break
        rest, sizes[best] = rest - moves[best], np.inf
    return rest


def row_errors(actual: np.ndarray, expected: ExpectedRows, limit: float) -> np.ndarray:
    """Each row's unexplained difference over its norm."""
    norms = np.linalg.norm(expected.values, axis=1)
    differences = np.asarray(actual, np.float64) - expected.values
    left = np.linalg.norm(differences, axis=1)
    for token in np.flatnonzero(left > limit * norms):
        left[token] = np.linalg.norm(unexplained(differences[token], expected.moves_of(token)))
    return np.divide(left, norms, out=np.where(left > 0, np.inf, 0.0), where=norms > 0)


def assert_rows(actual: np.ndarray, expected: ExpectedRows, limit: float) -> None:
    if expected.steps is None:
        error = relative_l2(actual, expected.values)
        assert error <= limit, f"relative L2 {error:.3g} above {limit:.3g}"
        return
    assert np.shape(actual) == expected.values.shape
    errors = row_errors(actual, expected, limit)
    wrong = [f"row {row}: {errors[row]:.3g}" for row in np.flatnonzero(~(errors <= limit))]
    assert not wrong, f"relative L2 above {limit:.3g} beside steps of codes: {', '.join(wrong)}"


def problem(device, num_tokens, num_experts, hidden, width, top_k, dtype, padding=0):
    """(stack on the device, values, what the operation is given, ids, weights)."""
    rng = shapes.generator("experts", num_tokens, num_experts, hidden, width)
    stack = calls.ExpertStack(
        device,
        rng.standard_normal((num_experts, 2 * width, hidden)) / np.sqrt(hidden),
        rng.standard_normal((num_experts, hidden, width)) / np.sqrt(width),
        dtype,
        padding,
    )
    values = op.as_activation(device, rng.standard_normal((num_tokens, hidden)))
    ids = np.array(
        [rng.permutation(num_experts)[:top_k] for _ in range(num_tokens)], dtype=np.int32
    ).reshape(num_tokens, top_k)
    weights = rng.uniform(0.1, 1, (num_tokens, top_k)).astype(np.float32)
    given = op.quantise(device, values) if dtype == FP8 else values
    return stack, values, given, ids, weights
