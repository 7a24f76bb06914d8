"""Work of the ranks of one group, a thread a rank."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from glm_engine.verify.device import Backend, Device
from tests.devices import most_ranks, ranks_per_device


def on_ranks(backend: Backend, world_size: int, work: Callable[[Device, int], object]) -> list:
    """Runs work(device, rank) on a thread a rank; gives the results in rank order."""
    if world_size > most_ranks(backend.kind):
        pytest.skip(f"expected room for {world_size} ranks, got {most_ranks(backend.kind)}")
    with backend.group(world_size, ranks_per_device(backend.kind, world_size)) as group:

        def run(rank):
            with backend.device(1, rank, world_size, group) as device:
                return work(device, rank)

        with ThreadPoolExecutor(world_size) as threads:
            return list(threads.map(run, range(world_size)))
