"""Charts of a report: throughput and latencies over the request rate, gauges over time."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from glm_engine.bench.plots import (
    COLOURS,
    EDGE_INCHES,
    prepare_plot,
    write_figure,
)
from glm_engine.core.layout import StrPath
from glm_engine.load.fields import GaugeName, LatencyName, Point, Report, SummaryName
from glm_engine.load.report import rate_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 11.6, 3.8
HEAD_ROOM = 1.1
DRAWN: tuple[SummaryName, ...] = ("p50", "p90", "p99")
LATENCIES: dict[LatencyName, str] = {
    "ttft_ms": "time to first token, ms",
    "tpot_ms": "time per output token, ms",
}
GAUGES: dict[GaugeName, tuple[str, int]] = {
    "batch_occupancy": ("batch used, %", 100),
    "kv_utilisation": ("KV cache used, %", 100),
    "waiting_requests": ("requests waiting", 1),
}


def plot_report(report: Report, path: StrPath) -> list[Path]:
    """Write PATH.png and PATH.svg and return the paths."""
    paths, pyplot = prepare_plot(path)
    points = report["points"]
    watched = [point for point in points if point.get("gauges")]
    rows = 2 if watched else 1
    size = (WIDTH, rows * HEIGHT)
    figure, axes = pyplot.subplots(rows, 3, figsize=size, layout="constrained", squeeze=False)
    figure.get_layout_engine().set(w_pad=EDGE_INCHES)
    draw_throughput(axes[0][0], points)
    for one, (name, title) in zip(axes[0][1:], LATENCIES.items(), strict=True):
        draw_latency(one, points, name, title)
    for one in axes[0]:
        dress_rates(one, points)
    for one, (gauge, (title, scale)) in zip(axes[1:].flat, GAUGES.items(), strict=False):
        draw_gauge(one, watched, gauge, title, scale)
    figure.suptitle(f"{report['target']['model']}, {report['target']['endpoint']}")
    return write_figure(figure, paths)


def draw_throughput(axes: "Axes", points: Sequence[Point]) -> None:
    axes.set_title("output tokens/s", loc="left", fontsize="medium")
    values = [point["output_tokens_per_second"] for point in points]
    axes.plot(range(len(points)), values, marker="o", color=COLOURS[0])
    dress_values(axes, values)


def draw_latency(axes: "Axes", points: Sequence[Point], name: LatencyName, title: str) -> None:
    axes.set_title(title, loc="left", fontsize="medium")
    found = [(at, point[name]) for at, point in enumerate(points)]
    known = [(at, summary) for at, summary in found if summary is not None]
    for colour, percentile in zip(COLOURS, DRAWN, strict=False):
        values = [summary[percentile] for _, summary in known]
        axes.plot([at for at, _ in known], values, marker="o", color=colour, label=percentile)
    dress_values(axes, [summary[name] for _, summary in known for name in DRAWN])
    if known:
        axes.legend(frameon=False, loc="upper left")


def draw_gauge(
    axes: "Axes", points: Sequence[Point], name: GaugeName, title: str, scale: int
) -> None:
    axes.set_title(title, loc="left", fontsize="medium")
    drawn: list[float] = []
    for colour, point in zip(cycle(COLOURS), points, strict=False):
        rows = point["gauges"] or []
        seconds = [row["seconds"] for row in rows]
        values = [scale * row[name] for row in rows]
        axes.plot(seconds, values, color=colour, label=rate_text(point), marker=".")
        drawn += values
    dress_values(axes, drawn)
    axes.set_xlabel("seconds")
    if len(points) > 1:
        axes.legend(frameon=False, title="request rate, requests/s")


def dress_values(axes: "Axes", values: Sequence[float]) -> None:
    """Scale from zero to a little above the maximum."""
    from matplotlib import ticker

    axes.set_ylim(0, HEAD_ROOM * max(values, default=0) or 1)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))


def dress_rates(axes: "Axes", points: Sequence[Point]) -> None:
    """Put the request rates on the axis in their order, at equal distances."""
    axes.set_xlabel("request rate, requests/s")
    axes.set_xticks(range(len(points)), [rate_text(point) for point in points])
    axes.set_xlim(-0.4, len(points) - 0.6)
