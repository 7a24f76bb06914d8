"""Many exchanges between ranks: random numbers of rows, eager calls and graphs in any order.

Four ranks and more give each row of many an owner (native/collectives/peer/owners.hpp): numbers of
rows on both sides of where that begins, and such that the last launch of some has few rows again.
"""

import ctypes
import threading
import time
from collections.abc import Iterator
from itertools import cycle

import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16
from glm_engine.verify.device import BackendError, address
from glm_engine.verify.header import constants, structs
from glm_engine.verify.operations import add_norm, as_activation, outputs
from tests import shapes
from tests.devices import ranks_per_device
from tests.native.ranks import on_ranks
from tests.native.test_graphs import capture

WIDTH = 5120
ROWS = (1, 2, 7, 23, 24, 31, 32, 129, 300, 600, 2058, 2100)
NUM_TURNS = 400
PER_GRAPH = 3
MOST_SECONDS = 5
FEW_ROWS, MANY_ROWS = (1, 2, 5), 130
INFINITY = 0x7F80
NO_EXPONENT = 0x807F
NEAR_ONE = 127


@pytest.fixture(autouse=True)
def device_with_graphs(backend):
    if backend.kind == "cpu":
        pytest.skip("the CPU device has no graphs; test_collectives.py holds its exchanges")


class Exchanges:
    """One rank's exchanges of each number of rows, on one residual and fresh deltas."""

    def __init__(self, device, deltas):
        self.device, shape = device, (max(ROWS), WIDTH)
        self.deltas = [device.activation(delta) for delta in deltas]
        self.residual = device.activation(np.zeros(shape))
        self.plain = device.output(shape, device.activation_type)
        self.weight = device.place(np.ones(WIDTH, np.float32))
        self.graphs: dict[int, ctypes.c_void_p] = {}

    def run(self, count: int, which: int) -> None:
        self.device.run(
            "reduce_add_norm_quantise",
            num_tokens=count,
            hidden_size=WIDTH,
            epsilon=1e-5,
            residual=self.residual,
            delta=self.deltas[which],
            weight=self.weight,
            output=structs()["glm_activation_output"](self.plain.block, None, None),
        )

    def capture(self) -> None:
        for count in ROWS:

            def work(count=count):
                for which in range(PER_GRAPH):
                    self.run(count, which)

            self.graphs[count] = capture(self.device, work)

    def replay(self, count: int) -> None:
        self.device.check(self.device.table.graph_replay(self.device.handle, self.graphs[count]))

    def free(self) -> None:
        for graph in self.graphs.values():
            self.device.check(self.device.table.graph_free(self.device.handle, graph))

    def state(self) -> np.ndarray:
        shape, dtype = (max(ROWS), WIDTH), self.device.activation_type
        raw = self.device.download(self.residual, shape, dtype)
        return raw if raw.dtype == np.float32 else decode_bf16(raw)


def deltas_of(world_size: int) -> np.ndarray:
    """[world_size, PER_GRAPH, rows, WIDTH] with zeros of both signs and values of every size."""
    random = shapes.generator("exchanges", world_size)
    shape = (world_size, PER_GRAPH, max(ROWS), WIDTH)
    values = random.standard_normal(shape).astype(np.float32)
    values[:, :, :, ::7] *= 0.0
    values[:, :, :, 1::11] *= 1e-38
    values[:, :, :, 2::13] *= 1e4
    return values


def course(world_size: int) -> list[tuple[int, bool]]:
    """(number of rows, whether a graph does it) of every turn."""
    random = shapes.generator("course of exchanges", world_size)
    return [(int(random.choice(ROWS)), bool(random.integers(2))) for _ in range(NUM_TURNS)]


def expected_state(device, deltas: np.ndarray) -> np.ndarray:
    state = as_activation(device, np.zeros((max(ROWS), WIDTH)))
    rounded = as_activation(device, deltas)
    totals = rounded[0]
    for other in rounded[1:]:
        totals = totals + other
    for count, _ in course(len(deltas)):
        for which in range(PER_GRAPH):
            state[:count] = as_activation(device, state[:count] + totals[which][:count])
    return state


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_any_course_of_exchanges_gives_every_rank_the_same_sums(backend, world_size):
    deltas = deltas_of(world_size)

    def work(device, rank):
        exchanges = Exchanges(device, deltas[rank])
        exchanges.capture()
        for count, is_graph in course(world_size):
            if is_graph:
                exchanges.replay(count)
            else:
                for which in range(PER_GRAPH):
                    exchanges.run(count, which)
        state = exchanges.state()
        exchanges.free()
        expected = expected_state(device, deltas) if rank == 0 else None
        return state, expected

    results = on_ranks(backend, world_size, work)
    for state, _ in results:
        np.testing.assert_array_equal(state, results[0][1])


def reduced_bits(device, residual: np.ndarray, delta: np.ndarray) -> list[np.ndarray]:
    """The bits of residual, plain output, codes and scales after a sum of rows given in BF16."""
    struct, (plain, codes, scale) = outputs(device, residual.shape, plain=True, quantised=True)
    state = device.place(residual)
    device.run(
        "reduce_add_norm_quantise",
        num_tokens=len(residual),
        hidden_size=residual.shape[1],
        epsilon=1e-5,
        residual=state,
        delta=device.place(delta),
        weight=device.place(np.ones(residual.shape[1], np.float32)),
        output=struct,
    )
    total = device.download(state, residual.shape, np.uint16)
    return [total, *(each.get().view(np.uint8) for each in (plain, codes, scale))]


def parts_of_few_rows() -> Iterator[slice]:
    """All rows in order, FEW_ROWS of them at a time, by turns."""
    begin = 0
    for count in cycle(FEW_ROWS):
        if begin >= MANY_ROWS:
            return
        yield slice(begin, begin + count)
        begin += count


def any_bits(name: str, width: int, *ranks: int) -> np.ndarray:
    """BF16 of every kind, row by row in turn: of any finite bits, of any bits at all, infinities
    and numbers that are none among them, and near 1, whose squares are finite, too."""
    random = shapes.generator(name, width, *ranks)
    bits = random.integers(0, 1 << 16, (MANY_ROWS, width), np.uint16)
    is_finite = bits & INFINITY != INFINITY
    bits[::3] = np.where(is_finite[::3], bits[::3], 0x8000)
    bits[2::3] = bits[2::3] & NO_EXPONENT | random.integers(NEAR_ONE - 8, NEAR_ONE, width) << 7
    return bits


@pytest.mark.parametrize("width", [5120, 520, 13])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_a_row_has_the_same_bits_in_an_exchange_of_few_rows_and_of_many(backend, world_size, width):
    residual = any_bits("residual of any bits", width)

    def work(device, rank):
        delta = any_bits("delta of any bits", width, world_size, rank)
        few = [reduced_bits(device, residual[part], delta[part]) for part in parts_of_few_rows()]
        return reduced_bits(device, residual, delta), list(
            map(np.concatenate, zip(*few, strict=True))
        )

    results = on_ranks(backend, world_size, work)
    for many, few in results:
        for first, mine, others in zip(results[0][0], many, few, strict=True):
            np.testing.assert_array_equal(mine, first)
            np.testing.assert_array_equal(mine, others)


def test_a_graph_of_one_exchange_is_refused(backend):
    def work(device, rank):
        exchanges = Exchanges(device, deltas_of(2)[rank])
        device.check(device.table.graph_begin(device.handle))
        exchanges.run(1, 0)
        graph = ctypes.c_void_p()
        status = device.table.graph_end(device.handle, address(graph))
        return status, device.message()

    for status, message in on_ranks(backend, 2, work):
        assert status != 0
        assert "expected no exchanges between ranks in the graph, or at least two" in message


def test_a_capture_whose_end_others_do_not_reach_is_ended(backend):
    if ranks_per_device(backend.kind, 2) == 1:
        pytest.skip("ranks with GPUs of their own meet at no capture")

    def work(device, rank):
        device.check(device.table.graph_begin(device.handle))
        if rank == 1:
            device.check(device.table.graph_end(device.handle, None))
            backend.table.group_abort(device.group)
            return
        graph = ctypes.c_void_p()
        status = device.table.graph_end(device.handle, address(graph))
        assert status == constants()["GLM_CANCELLED"], device.message()
        device.allocate(8)

    on_ranks(backend, 2, work)


def test_a_rank_that_does_not_come_is_named_within_seconds(backend):
    has_failed = threading.Event()

    def work(device, rank):
        if rank == 1:
            assert has_failed.wait(MOST_SECONDS)
            return None
        begin = time.monotonic()
        with pytest.raises(BackendError, match="rank 0 waited 3000 ms for data from rank 1"):
            add_norm(device, *np.ones((2, 1, 8)), np.ones(8), 1e-5)
        has_failed.set()
        assert time.monotonic() - begin < MOST_SECONDS
        return True

    on_ranks(backend, 2, work)
