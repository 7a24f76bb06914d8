"""What the prediction layer's joint matrix is given: [embedding, hidden state], both normed."""

from dataclasses import dataclass

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, BackendError, Matrix
from tests import shapes
from tests.native import calls
from tests.reference.compare import relative_l2
from tests.reference.norm import rms_norm

EPSILON = 1e-5
VOCABULARY = 29
TABLES = {"f32": F32, "bf16": BF16}
JOINTS = {"air_over_8": 4096 // 8, "glm_4_7_over_8": 5120 // 8, "odd": 75, "air": 4096}


@dataclass(frozen=True)
class Problem:
    """A table as placed and as the device sees it, and rows of which some stand at position 0."""

    table: Matrix
    embeddings: np.ndarray
    token_ids: np.ndarray
    positions: np.ndarray
    hidden: np.ndarray
    norms: np.ndarray

    def run(self, device, part: slice = slice(None)) -> np.ndarray:
        rows = (each[part] for each in (self.token_ids, self.positions, self.hidden))
        return op.embed_norm_concat(device, self.table, *rows, self.norms, EPSILON)

    def masked(self) -> np.ndarray:
        """The embeddings of the rows, zero at position 0."""
        return self.embeddings[self.token_ids] * (self.positions != 0)[:, None]


def problem(device, num_tokens: int, width: int, dtype: int) -> Problem:
    rng = shapes.generator("joint input", num_tokens, width)
    table, exact = calls.table(device, shapes.hostile_rows(VOCABULARY, width, "table"), dtype)
    return Problem(
        table,
        op.as_activation(device, exact),
        rng.integers(0, VOCABULARY, num_tokens),
        rng.integers(0, 3, num_tokens),
        op.as_activation(device, shapes.hostile_rows(num_tokens, width, "hidden")),
        1 + 0.1 * rng.standard_normal((2, width)).astype(np.float32),
    )


def expected_rows(given: Problem) -> np.ndarray:
    halves = zip((given.masked(), given.hidden), given.norms, strict=True)
    exact = [(rows.astype(np.float64), weight.astype(np.float64)) for rows, weight in halves]
    return np.concatenate([rms_norm(*half, EPSILON) for half in exact], axis=1)


@pytest.mark.parametrize("dtype", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("shape", [*shapes.matrices(), *shapes.wide_rows()], ids=shapes.shape_name)
def test_rows_beside_float64(device, shape, dtype):
    given = problem(device, *shape, dtype)
    actual, expected = given.run(device), expected_rows(given)
    assert actual.shape == expected.shape
    for half in np.split(np.arange(2 * shape[1]), 2):
        for row in range(shape[0]):
            assert relative_l2(actual[row, half], expected[row, half]) <= calls.tolerance(device)


@pytest.mark.parametrize("width", [1, 75, 1024, 5120, 9000, 20001, 40000])
def test_each_half_has_the_bits_of_a_norm(device, width):
    given = problem(device, 9, width, BF16)
    actual = given.run(device)
    for half, rows, weight in zip(
        (actual[:, :width], actual[:, width:]),
        (given.masked(), given.hidden),
        given.norms,
        strict=True,
    ):
        _, alone, _ = op.add_norm(device, rows, None, weight, EPSILON, quantised=False)
        np.testing.assert_array_equal(half, alone)


@pytest.mark.parametrize("width", [75, 1024, 12288])
def test_a_row_alone_has_the_bits_that_it_has_among_others(device, width):
    num_tokens = 2 * shapes.TILE + 39
    given = problem(device, num_tokens, width, BF16)
    assert 0 < np.count_nonzero(given.positions == 0) < num_tokens
    together = given.run(device)
    for part in (slice(0, 1), slice(7, 20), slice(num_tokens - 1, num_tokens)):
        np.testing.assert_array_equal(given.run(device, part), together[part])


def test_a_hidden_state_that_is_not_finite_stays_in_its_half(device):
    given = problem(device, 5, 64, BF16)
    sound = given.run(device)
    given.hidden[2] = np.nan
    actual = given.run(device)
    assert np.isnan(actual[2, 64:]).all()
    np.testing.assert_array_equal(actual[:, :64], sound[:, :64])
    others = [0, 1, 3, 4]
    np.testing.assert_array_equal(actual[others], sound[others])


@pytest.mark.parametrize("dtype", calls.WEIGHTS.values(), ids=calls.WEIGHTS)
@pytest.mark.parametrize("hidden_size", JOINTS.values(), ids=JOINTS)
def test_the_joint_matrix_takes_rows_of_twice_the_width(device, hidden_size, dtype):
    given = problem(device, 3, hidden_size, BF16)
    rng = shapes.generator("joint", hidden_size)
    num_rows = 2 * shapes.TILE + 2
    placed, weight = calls.matrix(device, rng.standard_normal((num_rows, 2 * hidden_size)), dtype)
    rows = given.run(device)
    coded = op.quantise(device, rows) if dtype == FP8 else rows
    exact = (calls.values_of(coded) if dtype == FP8 else rows).astype(np.float64)
    product = op.linear(device, placed, coded)
    assert relative_l2(product, exact @ weight.T) <= calls.tolerance(device)


def refused(device, text: str, **changes) -> None:
    given = problem(device, 2, 8, BF16)
    block = device.place(np.zeros(64, np.float32))
    names = ("token_ids", "positions", "embedding_norm", "hidden", "hidden_norm", "output")
    fields = {"num_tokens": 2, "hidden_size": 8, "epsilon": EPSILON, "table": given.table.pointer}
    fields |= dict.fromkeys(names, block)
    with pytest.raises(BackendError, match=f"embed_norm_concat: {text}"):
        device.run("embed_norm_concat", **(fields | changes))


def test_arguments_that_do_not_fit(device):
    refused(device, "num_tokens: expected 0 to 1073741823, got -1", num_tokens=-1)
    refused(device, "hidden_size: expected 1 to 1073741823, got 0", hidden_size=0)
    refused(device, "table columns: expected 9, got 8", hidden_size=9)
    refused(device, "table: expected a pointer, got null", table=None)
    for name in ("token_ids", "positions", "embedding_norm", "hidden", "hidden_norm", "output"):
        refused(device, f"{name}: expected a pointer, got null", **{name: None})
    product, _ = calls.matrix(device, np.ones((5, 8)), BF16)
    refused(device, "(table|matrix) role: expected 2, got 0", table=product.pointer)


def test_ids_outside_the_table(device):
    given = problem(device, 3, 64, BF16)
    known = int(np.argmax(np.abs(given.embeddings).sum(axis=1)))
    outside = np.array([known, VOCABULARY, -1])
    rows = (outside, np.ones(3), given.hidden, given.norms, EPSILON)
    if device.facts.checks_indexes:
        with pytest.raises(BackendError, match=r"token_ids\[1\]: expected 0 to 28, got 29"):
            op.embed_norm_concat(device, given.table, *rows)
        return
    actual = op.embed_norm_concat(device, given.table, *rows)
    assert np.count_nonzero(actual[0, :64]) > 0
    np.testing.assert_array_equal(actual[1:, :64], 0)
