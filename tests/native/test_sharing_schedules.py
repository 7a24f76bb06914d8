"""Ranks that share a GPU, without a GPU: in whatever order their threads run, nothing on the GPU
waits for what comes after it.

The ranks' threads are programs of launches and meetings, the common stream is the list of what they
launched. In which order an operation of the CUDA device launches and meets is read from its source;
`before` and `after` are launches of each rank around it. Each launch of an operation needs what all
ranks launched just before it, and what comes after needs what all have launched last in it.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shapes import run_seed

NATIVE = Path(__file__).resolve().parents[2] / "native"
MEETING = "meeting"
NUM_SCHEDULES = 100
NUM_OPERATIONS = 12


@dataclass(frozen=True)
class Function:
    """A function that launches something (`call` in its source) between meetings of the ranks."""

    file: str
    name: str
    call: str
    launched: str

    def steps(self) -> list[str]:
        """What the function launches and where it meets, in the order of its source."""
        text = (NATIVE / self.file).read_text()
        [body] = re.findall(rf"^\w[\w ]* {self.name}\(.*?^}}$", text, re.M | re.S)
        found = re.findall(rf"\bmeet(?:_on_gpu)?\(|{re.escape(self.call)}", body)
        return [self.launched if each == self.call else MEETING for each in found]


@dataclass(frozen=True)
class Operation:
    """What each rank's thread calls, one function after the other."""

    name: str
    functions: Sequence[Function]
    before: str
    after: str
    is_of_rank_0: bool = False

    def steps(self) -> list[str]:
        return [step for function in self.functions for step in function.steps()]


REDUCE = "kernels/reduce_add_norm_quantise/reduce_add_norm_quantise.cu"
SEND = Function(REDUCE, "send_before_all_receive", "Work::sending", "send")
ADD = Function(REDUCE, "add_before_all_receive", "Work::adding", "add")
COPY = Function("backends/cuda/collectives.cpp", "exchange_arrays", "copy_to_ranks(", "copy")
LAUNCH = Function("backends/cuda/graphs.cpp", "graph_replay", "cudaGraphLaunch(", "graph")
OPERATIONS = (
    Operation("sum", (SEND,), "", "receive"),
    Operation("sum of owners", (SEND, ADD), "", "receive"),
    Operation("gather", (COPY,), "make", "use"),
    Operation("replay", (LAUNCH,), "inputs", "outputs", is_of_rank_0=True),
)
STEPS = {operation: operation.steps() for operation in OPERATIONS}
MEETINGS = [
    (operation, place)
    for operation, steps in STEPS.items()
    for place, step in enumerate(steps)
    if step == MEETING
]


@dataclass(frozen=True)
class Launch:
    rank: int
    number: int
    part: str
    needs: tuple = ()


@dataclass
class Thread:
    program: list
    next: int = 0
    num_meetings: int = 0
    waits: bool = False


def program(operation: Operation, steps: list[str], rank: int, number: int, ranks: range) -> list:
    needed = tuple((other, number, operation.before) for other in ranks if operation.before)
    launching = range(1) if operation.is_of_rank_0 else ranks
    made = [Launch(rank, number, operation.before)] if operation.before else []
    for step in steps:
        if step == MEETING:
            made.append(step)
            continue
        if rank in launching:
            made.append(Launch(rank, number, step, needed))
        needed = tuple((other, number, step) for other in launching)
    return [*made, Launch(rank, number, operation.after, needed)]


def programs(steps: dict, world_size: int, chance: random.Random) -> list[list]:
    """One program for each rank, of the same operations."""
    chosen, ranks = chance.choices(list(steps), k=NUM_OPERATIONS), range(world_size)
    return [
        [
            step
            for i, each in enumerate(chosen)
            for step in program(each, steps[each], rank, i, ranks)
        ]
        for rank in ranks
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


def waits_for_later(steps: dict, world_size: int, number: int) -> list[Launch]:
    """Launches of one random schedule before which something is missing that they need."""
    chance = random.Random(f"{run_seed()} {world_size} {number}")
    stream = stream_of(programs(steps, world_size, chance), chance)
    places = {(each.rank, each.number, each.part): i for i, each in enumerate(stream)}
    return [
        each for i, each in enumerate(stream) if any(places[needed] > i for needed in each.needs)
    ]


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_nothing_waits_for_what_comes_after_it(world_size):
    for number in range(NUM_SCHEDULES):
        assert waits_for_later(STEPS, world_size, number) == [], f"schedule {number}"


@pytest.mark.parametrize(
    ("operation", "place"), MEETINGS, ids=lambda each: getattr(each, "name", each)
)
def test_without_any_of_the_meetings_something_would_wait_for_a_later_launch(operation, place):
    steps = STEPS[operation]
    fewer = {**STEPS, operation: [*steps[:place], *steps[place + 1 :]]}
    assert any(waits_for_later(fewer, 2, number) for number in range(NUM_SCHEDULES))
