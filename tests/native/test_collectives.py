import threading

import numpy as np
import pytest

from glm_engine.verify.device import BackendError
from glm_engine.verify.header import constants, structs
from glm_engine.verify.operations import (
    add_norm,
    as_activation,
    outputs,
    scattered_add_norm,
)
from tests import shapes
from tests.native.ranks import on_ranks

WORLDS = [1, 2, 4, 8]
NUM_EXCHANGES = 5
SHAPES = [
    (0, 8),
    (1, 1),
    (1, 1017),
    (1, 5120),
    (1, 12288),
    (2, 8200),
    (2, 8201),
    (2, 12281),
    (3, 13),
    (17, 256),
    (64, 264),
    (64, 8200),
    (65, 13),
    (65, 8201),
    (513, 40),
    (1025, 40),
    (2049, 40),
    (2100, 40),
]
ROWS_OF_BYTES = [(0, 16), (1, 4), (3, 5), (8, 52), (13, 28), (37, 4800)]


def parts(world_size, shape):
    rng = shapes.generator("parts", world_size, *shape)
    return rng.standard_normal((world_size, *shape)).astype(np.float32) * 1000


def drawn_bytes(world_size, shape):
    random = shapes.generator("bytes of ranks", world_size, *shape)
    return random.integers(0, 256, (world_size, *shape), np.uint8)


def expected_sum(deltas):
    """float32 sums in rank order of what every rank gave."""
    total = deltas[0].copy()
    for other in deltas[1:]:
        total += other
    return total


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("shape", SHAPES, ids=shapes.shape_name)
def test_reduced_rows_are_those_of_one_rank(backend, world_size, shape):
    """Every exchange of several in turn gives each rank the bits that one rank has of the sum."""
    given = parts(world_size, (NUM_EXCHANGES, *shape))
    given[:, :, :1] *= 0.0
    residual, weight = parts(1, shape)[0], np.abs(parts(1, (shape[1],))[0])

    def work(device, rank):
        deltas = [as_activation(device, each) for each in given[rank]]
        return [add_norm(device, residual, delta, weight, 1e-5) for delta in deltas]

    several = on_ranks(backend, world_size, work)
    with backend.device() as device:
        for number in range(NUM_EXCHANGES):
            deltas = [as_activation(device, each) for each in given[:, number]]
            total, plain, quantised = several[0][number]
            exact = as_activation(device, residual) + expected_sum(deltas)
            np.testing.assert_array_equal(total, as_activation(device, exact))
            _, alone, codes = add_norm(device, total, None, weight, 1e-5)
            np.testing.assert_array_equal(plain, alone)
            np.testing.assert_array_equal(quantised.codes, codes.codes)
            np.testing.assert_array_equal(quantised.scale, codes.scale)
    for other in several[1:]:
        for mine, theirs in zip(several[0], other, strict=True):
            np.testing.assert_array_equal(mine[0], theirs[0])
            np.testing.assert_array_equal(mine[1], theirs[1])
            np.testing.assert_array_equal(mine[2].codes, theirs[2].codes)


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("shape", SHAPES, ids=shapes.shape_name)
def test_scattered_rows_are_those_that_all_ranks_have(backend, world_size, shape):
    """Row i of a rank is row i times the number of ranks plus its own number, with equal bits;
    codes and scales of all rows come to all ranks."""
    if 0 < shape[0] < world_size:
        pytest.skip("fewer rows than ranks are refused")
    given = parts(world_size, (NUM_EXCHANGES, *shape))
    residual, weight = parts(1, shape)[0], np.abs(parts(1, (shape[1],))[0])

    def work(device, rank):
        own, count = slice(rank, None, world_size), shape[0]
        for each in [*given[rank], None]:
            delta = None if each is None else as_activation(device, each)
            every = add_norm(device, residual, delta, weight, 1e-5)
            share = scattered_add_norm(device, residual[own], delta, weight, 1e-5, count)
            np.testing.assert_array_equal(share[0], every[0][own])
            np.testing.assert_array_equal(share[1], every[1][own])
            np.testing.assert_array_equal(share[2].codes, every[2].codes)
            np.testing.assert_array_equal(share[2].scale, every[2].scale)

    on_ranks(backend, world_size, work)


@pytest.mark.parametrize("world_size", [2, 8])
def test_scattered_rows_fewer_than_ranks_are_refused(backend, world_size):
    """A rank without a row would wait for nobody."""
    count, text = world_size - 1, f"scattered num_tokens: expected {world_size} to"

    def work(device, _):
        rows = np.zeros((count, 8), np.float32)
        with pytest.raises(BackendError, match=text):
            scattered_add_norm(device, rows, rows, np.ones(8), 1e-5, count)

    on_ranks(backend, world_size, work)


def test_codes_of_scattered_rows_in_memory_of_one_rank_are_refused(backend):
    """Other ranks write them, at the same place of their memory."""
    if backend.kind != "cuda":
        pytest.skip("this device writes its own memory alone")
    shape, text = (4, 8), "codes: expected memory passed to group_bind, got other memory"

    def work(device, _):
        with pytest.raises(BackendError, match=text):
            device.run(
                "reduce_add_norm_quantise",
                num_tokens=shape[0],
                hidden_size=shape[1],
                epsilon=1e-5,
                is_scattered=1,
                residual=device.activation(np.zeros(shape)),
                delta=device.activation(np.zeros(shape)),
                weight=device.place(np.ones(shape[1], np.float32)),
                output=outputs(device, shape, plain=False, quantised=True)[0],
            )

    on_ranks(backend, 2, work)


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("shape", ROWS_OF_BYTES, ids=shapes.shape_name)
def test_all_gather_joins_rows(backend, world_size, shape):
    num_rows, row_bytes = shape
    given = drawn_bytes(world_size, shape)

    widths = (row_bytes, row_bytes // 4, 0, 1, row_bytes // 2)
    each = [np.ascontiguousarray(given[:, :, :width]) for width in widths]

    def work(device, rank):
        outputs = [device.shared((num_rows, world_size * width), np.uint8) for width in widths]
        arrays = [
            structs()["glm_gathered"](width, device.place(values[rank]), output.block)
            for width, values, output in zip(widths, each, outputs, strict=True)
        ]
        together = (structs()["glm_gathered"] * constants()["GLM_MAX_GATHERED"])(*arrays)
        device.run("all_gather", num_rows=num_rows, num_arrays=len(arrays), arrays=together)
        return [output.get() for output in outputs]

    for actual in on_ranks(backend, world_size, work):
        for values, gathered in zip(each, actual, strict=True):
            np.testing.assert_array_equal(gathered, np.concatenate(list(values), axis=1))


@pytest.mark.parametrize("num_arrays", [-1, 6])
def test_all_gather_of_too_many_arrays_is_refused(backend, num_arrays):
    text = f"num_arrays: expected 0 to 5, got {num_arrays}"
    with backend.device() as device, pytest.raises(BackendError, match=text):
        device.run("all_gather", num_rows=1, num_arrays=num_arrays)


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("shape", ROWS_OF_BYTES, ids=shapes.shape_name)
def test_all_to_all_gives_each_rank_its_rows_of_all(backend, world_size, shape):
    """Rows that no rank owns are not sent: what lies behind a rank's own stays as it was."""
    num_rows, row_bytes = shape
    given = drawn_bytes(world_size, shape)
    each = -(-num_rows // world_size)

    def work(device, rank):
        output = device.shared((each + 1, world_size * row_bytes), np.uint8)
        before = output.get()
        device.run(
            "all_to_all",
            num_rows=num_rows,
            row_bytes=row_bytes,
            input=device.place(given[rank]),
            output=output.block,
        )
        return before, output.get()

    joined = np.concatenate(list(given), axis=1)
    for rank, (before, actual) in enumerate(on_ranks(backend, world_size, work)):
        own = joined[rank * each : (rank + 1) * each]
        np.testing.assert_array_equal(actual[: len(own)], own)
        np.testing.assert_array_equal(actual[len(own) :], before[len(own) :])


@pytest.mark.parametrize("world_size", [2, 8])
def test_abort_wakes_the_waiting_ranks(backend, world_size):
    cancelled = constants()["GLM_CANCELLED"]
    waiting = threading.Semaphore(0)

    def work(device, rank):
        if rank == 0:
            for _ in range(world_size - 1):
                waiting.acquire()
            backend.table.group_abort(device.group)
        waiting.release()
        with pytest.raises(BackendError) as raised:
            add_norm(device, *np.ones((2, 1, 8)), np.ones(8), 1e-5)
        return raised.value.status

    assert on_ranks(backend, world_size, work) == [cancelled] * world_size


def test_ranks_that_disagree_all_hear_of_it(backend):
    if backend.kind != "cpu":
        pytest.skip("ranks on GPUs do not compare what they call: the engine gives all one plan")

    def work(device, rank):
        with pytest.raises(BackendError, match="expected every rank to call all_reduce of"):
            add_norm(device, *np.ones((2, 3 + rank, 8)), np.ones(8), 1e-5)
        return add_norm(device, *np.ones((2, 1, 8)), np.ones(8), 1e-5)[0]

    for actual in on_ranks(backend, 2, work):
        np.testing.assert_array_equal(actual, np.full((1, 8), 3.0))
