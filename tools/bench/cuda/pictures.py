"""The pictures of the page, as SVG and PNG."""

from collections.abc import Sequence
from pathlib import Path

from tools.bench.cuda import tables
from tools.bench.cuda.results import Results

SIZE = (9.6, 3.8)
SHOWN = 7
COLOURS = ("#1f5fa8", "#c0562d", "#2f7d3b", "#7a4fa3", "#c9a227", "#4aa3a3", "#8c564b", "#9a9a9a")
OTHERS = "all others"


def parts(row: dict, names: Sequence[str]) -> list[float]:
    """Percents of a step's operations: those named, then all others."""
    times = {one["name"]: one["ms"] for one in row["operations"]}
    total = sum(times.values())
    shown = [100 * times.get(name, 0.0) / total for name in names]
    return [*shown, 100 - sum(shown)]


def draw_operations(results: Results, path: Path) -> list[Path]:
    """A bar a batch size: what part of the step each operation takes."""
    from glm_engine.bench import plots

    rows = tables.profiled(results)
    names = tables.operation_names(rows)[:SHOWN]
    paths, pyplot = plots.prepare_plot(path), plots.load_pyplot()
    figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
    figure.get_layout_engine().set(w_pad=plots.EDGE_INCHES)
    places, columns = range(len(rows)), list(zip(*(parts(row, names) for row in rows), strict=True))
    left = [0.0] * len(rows)
    for name, column, colour in zip([*names, OTHERS], columns, COLOURS, strict=False):
        axes.barh(places, column, left=left, label=name, color=colour, height=0.7)
        left = [begin + width for begin, width in zip(left, column, strict=True)]
    axes.set_yticks(places, [f"batch {row['batch']}" for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the device time of an eager step")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    plots.write_figure(figure, paths)
    pyplot.close(figure)
    return paths


def draw(results: Results, folder: Path, name: str) -> list[Path]:
    """Every picture that there is something for."""
    from glm_engine.bench import plots

    drawn = plots.plot_report(results.as_report(), folder / f"{name}-decode")
    if tables.profiled(results):
        drawn += draw_operations(results, folder / f"{name}-operations")
    return drawn
