import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests import shapes
from tests.native.backend import BackendError, constants
from tests.native.facts import FACTS

WORLDS = [1, 2, 4, 8]


def on_ranks(backend, world_size, work):
    """Runs work(device, rank) on a thread a rank; gives the results in rank order."""
    largest = max(FACTS[backend.kind].world_sizes)
    if world_size > largest:
        pytest.skip(f"device {backend.kind} opens groups of no more than {largest}")
    with backend.group(world_size) as group:

        def run(rank):
            with backend.device(1, rank, world_size, group) as device:
                return work(device, rank)

        with ThreadPoolExecutor(world_size) as threads:
            return list(threads.map(run, range(world_size)))


def parts(world_size, shape, dtype=np.float32):
    rng = shapes.generator("parts", world_size, *shape)
    return rng.standard_normal((world_size, *shape)).astype(dtype) * 1000


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("count", [0, 1, 13, 4099])
def test_all_reduce_adds_in_rank_order(backend, world_size, count):
    given = parts(world_size, (count,))

    def work(device, rank):
        data = device.place(given[rank])
        for _ in range(3):
            device.upload(data, given[rank])
            device.run("all_reduce", dtype=0, count=count, data=data)
        return device.download(data, (count,), np.float32)

    expected = given[0].copy()
    for other in given[1:]:
        expected += other
    for actual in on_ranks(backend, world_size, work):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (13, 7)], ids=shapes.shape_name)
def test_all_gather_joins_rows(backend, world_size, shape):
    given = parts(world_size, shape)

    def work(device, rank):
        output = device.output((shape[0], world_size * shape[1]), np.float32)
        device.run(
            "all_gather",
            num_rows=shape[0],
            row_bytes=4 * shape[1],
            input=device.place(given[rank]),
            output=output.block,
        )
        return output.get()

    for actual in on_ranks(backend, world_size, work):
        np.testing.assert_array_equal(actual, np.concatenate(list(given), axis=1))


@pytest.mark.parametrize("world_size", WORLDS)
@pytest.mark.parametrize("size", [0, 1, 13])
def test_all_to_all_transposes_blocks(backend, world_size, size):
    given = parts(world_size, (world_size, size))

    def work(device, rank):
        output = device.output((world_size, size), np.float32)
        device.run(
            "all_to_all",
            block_bytes=4 * size,
            input=device.place(given[rank]),
            output=output.block,
        )
        return output.get()

    for rank, actual in enumerate(on_ranks(backend, world_size, work)):
        np.testing.assert_array_equal(actual, given[:, rank])


@pytest.mark.parametrize("world_size", [2, 8])
def test_abort_wakes_the_waiting_ranks(backend, world_size):
    cancelled = constants()["GLM_CANCELLED"]
    waiting = threading.Semaphore(0)

    def work(device, rank):
        data = device.place(np.ones(3, np.float32))
        if rank == 0:
            for _ in range(world_size - 1):
                waiting.acquire()
            backend.table.group_abort(device.group)
        waiting.release()
        with pytest.raises(BackendError) as raised:
            device.run("all_reduce", dtype=0, count=3, data=data)
        return raised.value.status

    assert on_ranks(backend, world_size, work) == [cancelled] * world_size


def test_ranks_that_disagree_all_hear_of_it(backend):
    def work(device, rank):
        data = device.place(np.ones(8, np.float32))
        with pytest.raises(BackendError, match="expected every rank to call all_reduce of"):
            device.run("all_reduce", dtype=0, count=3 + rank, data=data)
        device.run("all_reduce", dtype=0, count=8, data=data)
        return device.download(data, (8,), np.float32)

    for actual in on_ranks(backend, 2, work):
        np.testing.assert_array_equal(actual, np.full(8, 2.0))
