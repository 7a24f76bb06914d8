"""`python -m tools.bench.exchanges`: microseconds of reduce_add_norm_quantise over ranks.

Each rank, on a thread of its own, captures a graph of exchanges of one number of rows and replays
it with the others; the time is the device's, between events around a replay, over the number of
exchanges. The bytes are those that a rank sends where it sends each row to all others; where rows
have owners (native/collectives/peer/owners.hpp) it sends 2 / world size of them. Beside it, where
each rank has a GPU and NCCL is there, as many of NCCL's all-reduces of the same rows, without
residual, norm and quantisation.
"""

import ctypes
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier, BrokenBarrierError

import click
import numpy as np

from glm_engine.core.console import print_columns
from glm_engine.core.errors import GlmError
from glm_engine.verify.device import BF16, Backend, BackendError, Device
from glm_engine.verify.header import structs
from tools.bench import command
from tools.bindings.driver import StatusError, driver
from tools.bindings.wrappers import POINTER, CallError, Memory, on_nccl_ranks, wrapper

NUM_EXCHANGES = 184
NUM_REPLAYS = 20
NUM_WARM = 5
MOST_SECONDS = 60
NOT_MEASURED = "\N{EN DASH}"
TITLES = (">rows", ">µs an exchange (slowest rank)", ">NCCL's all-reduce", ">KB sent by a rank")
Times = Sequence[Sequence[float]]
"""Microseconds: [counts][ranks]."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
THREAD_LOCAL = 1


def has_nccl() -> bool:
    try:
        return wrapper("ncclwrap") is not None
    except OSError:
        return False


FAILURES = (BackendError, CallError, StatusError, OSError)


class ExchangeGraph:
    """Exchanges of `count` rows of `width` on one rank, captured."""

    def __init__(self, device: Device, count: int, width: int):
        self.device = device
        random = np.random.default_rng(count)
        values = random.standard_normal((count, width), np.float32) * 1e-3
        self.fields = {
            "num_tokens": count,
            "hidden_size": width,
            "epsilon": 1e-5,
            "residual": device.activation(values),
            "delta": device.activation(values),
            "weight": device.place(np.ones(width, np.float32)),
            "output": structs()["glm_activation_output"](
                device.output((count, width), device.activation_type).block,
                device.output((count, width), np.uint8).block,
                device.output((count,), np.float32).block,
            ),
        }
        self.graph = device.capture([self.exchange] * NUM_EXCHANGES)

    def exchange(self) -> None:
        self.device.run("reduce_add_norm_quantise", **self.fields)

    def replay(self) -> float:
        """Microseconds of one exchange."""
        spent = self.device.elapsed_ms(lambda: self.device.replay(self.graph))
        return 1e3 * spent / NUM_EXCHANGES

    def free(self) -> None:
        self.device.free_graph(self.graph)


class AllReduceGraph:
    """`num_calls` all-reduces of `count` rows of `width` BF16 on one rank's stream, captured."""

    def __init__(self, comm: POINTER, num_calls: int, count: int, width: int):
        self.comm, self.num_calls, self.num_elements = comm, num_calls, count * width
        self.cuda, self.memory = wrapper("cudawrap"), ExitStack()
        values = np.zeros(self.num_elements, np.uint16)
        self.given, self.sum = (self.memory.enter_context(Memory(values)) for _ in range(2))
        self.stream = self.cuda.made("cwCudaStreamCreate")
        self.events = [self.cuda.made("cwCudaEventCreate") for _ in range(2)]
        self.all_reduce()
        self.cuda.call("cwCudaDeviceSync")
        self.graph = self.captured()

    def all_reduce(self) -> None:
        pointers = (self.given.pointer, self.sum.pointer)
        given = (self.comm, *pointers, self.num_elements, BF16, self.stream)
        wrapper("ncclwrap").call("cwNcclAllReduce", *given)

    def captured(self) -> POINTER:
        captured, graph = POINTER(), POINTER()
        driver("cuStreamBeginCapture_v2", self.stream, THREAD_LOCAL)
        for _ in range(self.num_calls):
            self.all_reduce()
        driver("cuStreamEndCapture", self.stream, ctypes.byref(captured))
        driver("cuGraphInstantiateWithFlags", ctypes.byref(graph), captured, ctypes.c_uint64(0))
        driver("cuGraphDestroy", captured)
        return graph

    def replay(self) -> float:
        """Microseconds of one all-reduce."""
        begin, end = self.events
        self.cuda.call("cwCudaEventRecord", begin, self.stream)
        driver("cuGraphLaunch", self.graph, self.stream)
        self.cuda.call("cwCudaEventRecord", end, self.stream)
        self.cuda.call("cwCudaEventSync", end)
        milliseconds = ctypes.c_float()
        self.cuda.call("cwCudaEventElapsed", begin, end, ctypes.byref(milliseconds))
        return 1e3 * milliseconds.value / self.num_calls

    def free(self) -> None:
        driver("cuGraphExecDestroy", self.graph)
        for event in self.events:
            self.cuda.call("cwCudaEventDestroy", event)
        self.cuda.call("cwCudaStreamDestroy", self.stream)
        self.memory.close()


def median_of(graph: ExchangeGraph | AllReduceGraph, barrier: Barrier) -> float:
    """Microseconds of one exchange of a graph, which is freed."""
    times = []
    for _ in range(NUM_WARM + NUM_REPLAYS):
        barrier.wait()
        times.append(graph.replay())
    barrier.wait()
    graph.free()
    return statistics.median(times[NUM_WARM:])


def measure(world_size: int, counts: Sequence[int], width: int, ranks_per_device: int = 1) -> Times:
    backend, barrier = Backend("cuda"), Barrier(world_size, timeout=MOST_SECONDS)
    with backend.group(world_size, ranks_per_device) as group:

        def work(rank: int) -> list[float]:
            with backend.device(1, rank, world_size, group) as device:
                return [median_of(ExchangeGraph(device, n, width), barrier) for n in counts]

        with ThreadPoolExecutor(world_size) as threads:
            return list(zip(*threads.map(work, range(world_size)), strict=True))


def measure_nccl(world_size: int, counts: Sequence[int], width: int) -> Times:
    barrier = Barrier(world_size, timeout=MOST_SECONDS)

    def work(comm: POINTER, _: int) -> list[float]:
        graphs = (AllReduceGraph(comm, NUM_EXCHANGES, count, width) for count in counts)
        return [median_of(graph, barrier) for graph in graphs]

    return list(zip(*on_nccl_ranks(world_size, work), strict=True))


def table(world_size: int, width: int, measured: Times, beside: Times) -> list[Sequence[str]]:
    """Cells for each number of ROWS; an empty sequence of times is a dash."""
    return [
        (
            f"{count}",
            f"{max(times):.2f}",
            f"{max(peer):.2f}" if peer else NOT_MEASURED,
            f"{count * width * 2 * (world_size - 1) / 1e3:.1f}",
        )
        for count, times, peer in zip(ROWS, measured, beside, strict=True)
    ]


def measured_together(world_size: int, width: int, ranks_per_device: int) -> Times:
    """Microseconds of each number of ROWS on each rank."""
    try:
        return measure(world_size, ROWS, width, ranks_per_device)
    except BrokenBarrierError as error:
        raise GlmError(f"a rank did not answer within {MOST_SECONDS} s") from error


@click.command()
@click.option("--world-size", type=click.IntRange(2, 8), default=2, show_default=True)
@click.option("--width", type=click.IntRange(1, 5120), default=5120, show_default=True)
@command.ranks_per_device
def main(world_size: int, width: int, ranks_per_device: int) -> None:
    """Prints a line for each number of rows."""
    with command.errors_in_one_line("tools.bench.exchanges", *FAILURES):
        measured = measured_together(world_size, width, ranks_per_device)
        beside: Times = [()] * len(ROWS)
        if has_nccl() and ranks_per_device == 1:
            beside = measure_nccl(world_size, ROWS, width)
        click.echo(f"{world_size} ranks, {width} BF16 a row, graph of {NUM_EXCHANGES} exchanges")
        print_columns(TITLES, table(world_size, width, measured, beside))


if __name__ == "__main__":
    main()
