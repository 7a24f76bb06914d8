"""The figures of serving beside their limits."""

from collections.abc import Sequence
from statistics import median

from tools.bench.figures import Bound, Figure

LEAST_SHARE, MOST_MICROSECONDS = 0.95, 120.0
METHOD = (
    "The same requests, streamed, through `glm serve` and in an engine without a server (`glm load "
    "--engine`). Throughput: output tokens over the time from the first request to the last end. "
    "CPU: what the server's own counters of CPU seconds grew by over generated tokens, of the "
    "thread that speaks HTTP and of all threads."
)


def middle(rounds: list[dict], name: str) -> float:
    return median(point[name] for point in rounds)


def figures_of(servers: list[dict], engines: list[dict]) -> Sequence[Figure]:
    """Throughput of both sides, their ratio, and what a token costs."""
    mine = middle(servers, "output_tokens_per_second")
    own = middle(engines, "output_tokens_per_second")
    costs = [point["server"] for point in servers]
    http, process = (middle(costs, f"{name}_us_per_token") for name in ("http_cpu", "cpu"))
    client = max(point["client_cpu_share"] for point in servers)
    ttft = median(point["ttft_ms"]["p50"] for point in servers)
    return (
        Figure("through the server", mine, "tokens/s", note=f"TTFT {ttft:,.0f} ms (p50)"),
        Figure("the engine's own", own, "tokens/s"),
        Figure("server over engine", mine / own, "", Bound.AT_LEAST, LEAST_SHARE),
        Figure("CPU of the HTTP thread", http, "µs a token", Bound.AT_MOST, MOST_MICROSECONDS),
        Figure("CPU of the process", process, "µs a token"),
        Figure("CPU of the client", 100 * client, "%", note="of one core, the greatest"),
    )
