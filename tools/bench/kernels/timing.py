"""How often a graph is replayed, and what is made of the times."""

import statistics
from collections.abc import Callable, Sequence

MOST_CALLS = 128
GRAPH_US = 12_000.0
MIN_REPLAYS, MAX_REPLAYS = 3, 10
BUDGET_MS = 60.0


def num_repeats(num_calls: int, first_us: float) -> int:
    """How often a graph holds each of the calls: 128 of them, or 12 ms where they are long."""
    wanted = min(MOST_CALLS, max(1, round(GRAPH_US / max(first_us, 1.0))))
    return -(-wanted // num_calls)


def is_enough(times: Sequence[float]) -> bool:
    if len(times) >= MAX_REPLAYS:
        return True
    return len(times) >= MIN_REPLAYS and sum(times) >= BUDGET_MS


def median_us(replay: Callable[[], float], num_calls: int) -> float:
    """Median microseconds of a call; `replay` gives the milliseconds of all. The first is left
    out."""
    replay()
    times: list[float] = []
    while not is_enough(times):
        times.append(replay())
    return 1e3 * statistics.median(times) / num_calls
