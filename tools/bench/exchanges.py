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
from threading import Barrier, BrokenBarrierError

import click
import numpy as np

from glm_engine.core.errors import GlmError
from tools.bench import nccl
from tools.bench.one_line import errors_in_one_line
from tools.bindings.backend import Backend, BackendError, Device, address, structs
from tools.bindings.wrappers import POINTER, CallError, on_nccl_ranks

NUM_EXCHANGES = 184
NUM_REPLAYS = 20
NUM_WARM = 5
MOST_SECONDS = 60
NOT_MEASURED = "\N{EN DASH}"
TITLES = ("rows", "µs an exchange (slowest rank)", "NCCL's all-reduce", "KB sent by a rank")
FAILURES = (BackendError, CallError, nccl.DriverError, OSError)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ExchangeGraph:
    """Exchanges of `count` rows of `width` on one rank, captured."""

    def __init__(self, device: Device, count: int, width: int):
        self.device = device
        self.events = [self.event(), self.event()]
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
        self.graph = self.capture()

    def event(self) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.device.check(self.device.table.event_create(self.device.handle, address(made)))
        return made

    def capture(self) -> ctypes.c_void_p:
        graph, table, handle = ctypes.c_void_p(), self.device.table, self.device.handle
        self.device.check(table.graph_begin(handle))
        for _ in range(NUM_EXCHANGES):
            self.device.run("reduce_add_norm_quantise", **self.fields)
        self.device.check(table.graph_end(handle, address(graph)))
        return graph

    def replay(self) -> float:
        """Microseconds of one exchange."""
        table, handle, (begin, end) = self.device.table, self.device.handle, self.events
        self.device.check(table.event_record(handle, begin))
        self.device.check(table.graph_replay(handle, self.graph))
        self.device.check(table.event_record(handle, end))
        self.device.check(table.event_synchronise(handle, end))
        milliseconds = ctypes.c_float()
        self.device.check(table.event_elapsed(handle, begin, end, address(milliseconds)))
        return 1e3 * milliseconds.value / NUM_EXCHANGES

    def free(self) -> None:
        self.device.check(self.device.table.graph_free(self.device.handle, self.graph))
        for event in self.events:
            self.device.check(self.device.table.event_free(self.device.handle, event))


def median_of(graph: ExchangeGraph | nccl.AllReduceGraph, barrier: Barrier) -> float:
    """Microseconds of one exchange of a graph, which is freed."""
    times = []
    for _ in range(NUM_WARM + NUM_REPLAYS):
        barrier.wait()
        times.append(graph.replay())
    barrier.wait()
    graph.free()
    return statistics.median(times[NUM_WARM:])


def measure(
    world_size: int, counts: Sequence[int], width: int, ranks_per_device: int = 1
) -> list[list[float]]:
    """[counts][ranks] microseconds."""
    backend, barrier = Backend("cuda"), Barrier(world_size, timeout=MOST_SECONDS)
    with backend.group(world_size, ranks_per_device) as group:

        def work(rank: int) -> list[float]:
            with backend.device(1, rank, world_size, group) as device:
                return [median_of(ExchangeGraph(device, n, width), barrier) for n in counts]

        with ThreadPoolExecutor(world_size) as threads:
            return list(zip(*threads.map(work, range(world_size)), strict=True))


def measure_nccl(world_size: int, counts: Sequence[int], width: int) -> list[list[float]]:
    """[counts][ranks] microseconds."""
    barrier = Barrier(world_size, timeout=MOST_SECONDS)

    def work(comm: POINTER, _: int) -> list[float]:
        graphs = (nccl.AllReduceGraph(comm, NUM_EXCHANGES, count, width) for count in counts)
        return [median_of(graph, barrier) for graph in graphs]

    return list(zip(*on_nccl_ranks(world_size, work), strict=True))


def line_of(*cells: str) -> str:
    return "  ".join(cell.rjust(len(title)) for title, cell in zip(TITLES, cells, strict=True))


def table(world_size: int, width: int, measured, beside) -> list[str]:
    """Lines for each number of ROWS; an empty sequence of times is a dash."""
    title = f"{world_size} ranks, {width} BF16 a row, graph of {NUM_EXCHANGES} exchanges"
    lines = [title, "  ".join(TITLES)]
    for count, times, peer in zip(ROWS, measured, beside, strict=True):
        sent = count * width * 2 * (world_size - 1) / 1e3
        other = f"{max(peer):.2f}" if peer else NOT_MEASURED
        lines.append(line_of(f"{count}", f"{max(times):.2f}", other, f"{sent:.1f}"))
    return lines


def measured_together(world_size: int, width: int, ranks_per_device: int):
    """Microseconds of each number of ROWS on each rank."""
    try:
        return measure(world_size, ROWS, width, ranks_per_device)
    except BrokenBarrierError as error:
        raise GlmError(f"a rank did not answer within {MOST_SECONDS} s") from error


@click.command()
@click.option("--world-size", type=click.IntRange(2, 8), default=2, show_default=True)
@click.option("--width", type=click.IntRange(1, 5120), default=5120, show_default=True)
@click.option(
    "--ranks-per-device",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="Ranks on each GPU; set it to the number of ranks to run all of them on one GPU.",
)
def main(world_size: int, width: int, ranks_per_device: int) -> None:
    """Prints a line for each number of rows."""
    with errors_in_one_line("tools.bench.exchanges", *FAILURES):
        measured = measured_together(world_size, width, ranks_per_device)
        beside: list = [()] * len(ROWS)
        if nccl.is_present() and ranks_per_device == 1:
            beside = measure_nccl(world_size, ROWS, width)
        click.echo("\n".join(table(world_size, width, measured, beside)))


if __name__ == "__main__":
    main()
