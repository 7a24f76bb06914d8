"""Ranks that share a GPU, without a GPU: in whatever order their threads run, nothing on the GPU
waits for what comes after it.

The ranks' threads are programs of launches and meetings, the common stream is the list of what they
launched. Programs are those of reduce_add_norm_quantise (`send_before_all_receive`), of the gathers
(`exchange_blocks`) and of graphs (`graph_replay`) of the CUDA device: a launch of each rank between
two meetings, or before one. `needs` says what must lie earlier in the stream.
"""

import random
from dataclasses import dataclass

import pytest

from tests.shapes import run_seed

MEETING = "meeting"
NUM_SCHEDULES = 200
NUM_OPERATIONS = 12


@dataclass(frozen=True)
class Launch:
    rank: int
    operation: int
    part: str
    needs: tuple = ()


@dataclass
class Thread:
    program: list
    next: int = 0
    num_meetings: int = 0
    waits: bool = False


def sum_over_ranks(rank: int, number: int, world_size: int, meets: bool) -> list:
    sent = tuple((other, number, "send") for other in range(world_size))
    meeting = [MEETING] if meets else []
    return [Launch(rank, number, "send"), *meeting, Launch(rank, number, "receive", sent)]


def gather(rank: int, number: int, world_size: int, meets: bool) -> list:
    ranks, meeting = range(world_size), [MEETING] if meets else []
    made = tuple((other, number, "make") for other in ranks)
    copied = tuple((other, number, "copy") for other in ranks)
    return [
        Launch(rank, number, "make"),
        *meeting,
        Launch(rank, number, "copy", made),
        *meeting,
        Launch(rank, number, "use", copied),
    ]


def replay(rank: int, number: int, world_size: int, meets: bool) -> list:
    """Rank 0 launches the work of all, behind the inputs of all."""
    meeting = [MEETING] if meets else []
    given = tuple((other, number, "inputs") for other in range(world_size))
    whole = [Launch(0, number, "graph", given)] if rank == 0 else []
    after = Launch(rank, number, "outputs", ((0, number, "graph"),))
    return [Launch(rank, number, "inputs"), *meeting, *whole, *meeting, after]


def programs(world_size: int, chance: random.Random, meets: bool) -> list[list]:
    kinds = [chance.choice((sum_over_ranks, gather, replay)) for _ in range(NUM_OPERATIONS)]
    return [
        [step for i, kind in enumerate(kinds) for step in kind(rank, i, world_size, meets)]
        for rank in range(world_size)
    ]


def can_go_on(thread: Thread, threads: list[Thread]) -> bool:
    if thread.next == len(thread.program):
        return False
    return not thread.waits or all(t.num_meetings >= thread.num_meetings for t in threads)


def advance(thread: Thread, stream: list[Launch]) -> None:
    step = thread.program[thread.next]
    if step != MEETING:
        stream.append(step)
    elif not thread.waits:
        thread.num_meetings += 1
        thread.waits = True
        return
    thread.waits = False
    thread.next += 1


def stream_of(given: list[list], chance: random.Random) -> list[Launch]:
    """What the threads launch, in one of the orders that are possible; all come to their ends."""
    threads, stream = [Thread(program) for program in given], []
    while ready := [thread for thread in threads if can_go_on(thread, threads)]:
        advance(chance.choice(ready), stream)
    assert all(thread.next == len(thread.program) for thread in threads)
    return stream


def waits_for_later(stream: list[Launch]) -> list[Launch]:
    places = {(each.rank, each.operation, each.part): i for i, each in enumerate(stream)}
    return [
        each for i, each in enumerate(stream) if any(places[needed] > i for needed in each.needs)
    ]


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_nothing_waits_for_what_comes_after_it(world_size):
    for number in range(NUM_SCHEDULES):
        chance = random.Random(f"{run_seed()} {world_size} {number}")
        stream = stream_of(programs(world_size, chance, True), chance)
        assert waits_for_later(stream) == [], f"schedule {number}"


def test_without_meetings_launches_would_wait_for_later_ones():
    chance = random.Random(run_seed())
    assert waits_for_later(stream_of(programs(2, chance, False), chance))
