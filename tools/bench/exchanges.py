"""`python -m tools.bench.exchanges`: microseconds of reduce_add_norm_quantise over ranks.

Each rank, on a thread of its own, captures a graph of exchanges of one number of rows and replays
it with the others; the time is the device's, between events around a replay, over the number of
exchanges. The bytes are those that a rank sends to all others in one exchange.
"""

import ctypes
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import click
import numpy as np

from tests.native.backend import Backend, Device, address, structs

NUM_EXCHANGES = 184
NUM_REPLAYS = 20
NUM_WARM = 5
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


def measured(device: Device, barrier: Barrier, count: int, width: int) -> float:
    graph = ExchangeGraph(device, count, width)
    times = []
    for _ in range(NUM_WARM + NUM_REPLAYS):
        barrier.wait()
        times.append(graph.replay())
    graph.free()
    return statistics.median(times[NUM_WARM:])


def measure(world_size: int, counts: Sequence[int], width: int) -> list[list[float]]:
    """[counts][ranks] microseconds."""
    backend, barrier = Backend("cuda"), Barrier(world_size)
    with backend.group(world_size) as group:

        def work(rank: int) -> list[float]:
            with backend.device(1, rank, world_size, group) as device:
                return [measured(device, barrier, count, width) for count in counts]

        with ThreadPoolExecutor(world_size) as threads:
            return list(zip(*threads.map(work, range(world_size)), strict=True))


@click.command()
@click.option("--world-size", type=click.IntRange(2, 8), default=2, show_default=True)
@click.option("--width", type=click.IntRange(1, 5120), default=5120, show_default=True)
def main(world_size: int, width: int) -> None:
    """Prints a line for each number of rows."""
    click.echo(f"{world_size} ranks, {width} BF16 a row, graph of {NUM_EXCHANGES} exchanges")
    click.echo("rows  µs an exchange (slowest rank)  KB sent by a rank")
    for count, times in zip(ROWS, measure(world_size, ROWS, width), strict=True):
        sent = count * width * 2 * (world_size - 1) / 1e3
        click.echo(f"{count:4}  {max(times):8.2f}  {sent:10.1f}")


if __name__ == "__main__":
    main()
