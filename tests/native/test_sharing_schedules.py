"""Ranks that share a GPU, without a GPU: whatever the order in which blocks are placed, all end.

A model of one GPU: multiprocessors with room for blocks, a queue of kernels for each rank. Any
block that has room may be placed next, and any that can end may end next. Blocks of a persistent
grid end when all of them are placed; clusters need whole multiprocessors of one part of the GPU;
blocks of an exchange end when those of all ranks have sent. A kernel may start when all blocks of
the one before are placed, but behind an exchange when that has ended. Grids and numbers of waiting
blocks are those of native/collectives/peer/peer_group.cpp and native/backends/cuda/device.cpp.
"""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.shapes import run_seed

SOURCE = Path(__file__).resolve().parents[2] / "native" / "collectives" / "peer" / "peer_group.cpp"
GPCS = (16, 16, 16, 16, 16, 16, 18, 18)
NUM_PROCESSORS = sum(GPCS)
WHOLE = 4
CLUSTER_BLOCKS = 16
NUM_SCHEDULES = 12
ROUNDS = 2


def waiting_blocks_of_gpu() -> int:
    return int(re.search(r"kWaitingBlocksOfGpu = (\d+);", SOURCE.read_text())[1])


@dataclass
class Kernel:
    kind: str
    num_blocks: int
    size: int
    placed: list[int] = field(default_factory=list)
    num_ended: int = 0

    def is_placed(self) -> bool:
        return len(self.placed) + self.num_ended == self.num_blocks

    def has_ended(self) -> bool:
        return self.num_ended == self.num_blocks


class Gpu:
    """Several ranks' kernels on one GPU, placed and ended at random."""

    def __init__(self, programs: list[list[Kernel]], chance: random.Random):
        self.programs, self.chance = programs, chance
        self.room = [WHOLE] * NUM_PROCESSORS
        self.gpcs, begin = [], 0
        for size in GPCS:
            self.gpcs.append(range(begin, begin + size))
            begin += size

    def current(self, rank: int) -> int:
        program = self.programs[rank]
        return next((i for i, k in enumerate(program) if not k.has_ended()), len(program))

    def startable(self, rank: int) -> list[Kernel]:
        """Kernels with blocks left to place: the current one and those that may start early."""
        program, found = self.programs[rank], []
        for number in range(self.current(rank), len(program)):
            if number > self.current(rank):
                before = program[number - 1]
                if not before.is_placed() or before.kind == "exchange":
                    break
            if not program[number].is_placed():
                found.append(program[number])
        return found

    def places(self, kernel: Kernel) -> list[list[int]]:
        """Where the kernel's next block, or whole cluster, may go."""
        if kernel.kind != "cluster":
            return [[i] for i in range(NUM_PROCESSORS) if self.room[i] >= kernel.size]
        free = ([i for i in gpc if self.room[i] == WHOLE] for gpc in self.gpcs)
        return [each[:CLUSTER_BLOCKS] for each in free if len(each) >= CLUSTER_BLOCKS]

    def place(self, kernel: Kernel) -> bool:
        places = self.places(kernel)
        if not places:
            return False
        for processor in self.chance.choice(places):
            self.room[processor] -= kernel.size
            kernel.placed.append(processor)
        return True

    def has_sent(self, rank: int, number: int) -> bool:
        at = [i for i, k in enumerate(self.programs[rank]) if k.kind == "exchange"][number]
        return self.current(rank) >= at and self.programs[rank][at].is_placed()

    def can_end(self, rank: int) -> bool:
        at = self.current(rank)
        if at == len(self.programs[rank]) or not self.programs[rank][at].placed:
            return False
        kernel = self.programs[rank][at]
        if kernel.kind == "exchange":
            number = sum(k.kind == "exchange" for k in self.programs[rank][:at])
            return all(self.has_sent(other, number) for other in range(len(self.programs)))
        return kernel.kind == "plain" or kernel.is_placed()

    def end_some(self, rank: int) -> None:
        kernel = self.programs[rank][self.current(rank)]
        for _ in range(self.chance.randint(1, len(kernel.placed))):
            self.room[kernel.placed.pop()] += kernel.size
            kernel.num_ended += 1

    def place_some(self, kernels: list[Kernel]) -> bool:
        for kernel in self.chance.sample(kernels, len(kernels)):
            count = self.chance.randint(1, NUM_PROCESSORS)
            if self.place(kernel):
                while count > 0 and not kernel.is_placed() and self.place(kernel):
                    count -= 1
                return True
        return False

    def runs_to_its_end(self) -> bool:
        ranks = range(len(self.programs))
        while any(self.current(rank) < len(self.programs[rank]) for rank in ranks):
            endable = [rank for rank in ranks if self.can_end(rank)]
            kernels = [kernel for rank in ranks for kernel in self.startable(rank)]
            if endable and self.chance.random() < 0.3:
                self.end_some(self.chance.choice(endable))
            elif not self.place_some(kernels):
                if not endable:
                    return False
                self.end_some(self.chance.choice(endable))
        return True


def program(ranks_per_gpu: int, shares: bool, chance: random.Random) -> list[Kernel]:
    """Two halves of a layer, twice: products of any grid, clusters, persistent grids, exchanges."""
    waiting = waiting_blocks_of_gpu() // ranks_per_gpu if shares else NUM_PROCESSORS
    persistent = NUM_PROCESSORS // ranks_per_gpu if shares else NUM_PROCESSORS
    kernels = []
    for _ in range(ROUNDS):
        for kind in ("cluster", "persistent"):
            kernels += [Kernel("plain", chance.randint(1, 200), chance.randint(1, WHOLE))]
            is_cluster = kind == "cluster"
            kernels += [Kernel(kind, CLUSTER_BLOCKS if is_cluster else persistent, WHOLE)]
            kernels += [Kernel("exchange", waiting, 2)]
    return kernels


@pytest.mark.parametrize("ranks_per_gpu", [2, 4, 8])
def test_every_schedule_ends(ranks_per_gpu):
    for number in range(NUM_SCHEDULES):
        chance = random.Random(f"{run_seed()} {ranks_per_gpu} {number}")
        programs = [program(ranks_per_gpu, True, chance) for _ in range(ranks_per_gpu)]
        assert Gpu(programs, chance).runs_to_its_end(), f"schedule {number}"


def test_grids_of_the_whole_gpu_would_keep_ranks_from_each_other():
    chance = random.Random(run_seed())
    ends = []
    for _ in range(NUM_SCHEDULES):
        programs = [program(2, False, chance) for _ in range(2)]
        ends.append(Gpu(programs, chance).runs_to_its_end())
    assert not all(ends)
