"""Two charts of a report: tokens per second and share of the roofline over the batch size."""

import importlib
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import prepare_target, write_whole
from glm_engine.core.layout import IS_WHEEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (9.6, 3.8)
EDGE_INCHES = 0.1
COLOURS = ("#1f5fa8", "#c0562d", "#2f7d3b", "#7a4fa3", "#8a6d1f")
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "glm bench",
    "font.size": 11,
    "text.color": "#1a1a1a",
    "axes.labelcolor": "#1a1a1a",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
WAY_TO_MATPLOTLIB = (
    'install it with `pip install "glm-engine[plot]"`'
    if IS_WHEEL
    else "run the command with `tools/develop --with oracle`, or `pip install matplotlib`"
)
Row = Mapping[str, Any]
METADATA: dict[str, dict[str, None] | None] = {".png": None, ".svg": {"Date": None}}


def load_pyplot() -> ModuleType:
    try:
        import matplotlib
    except ImportError as error:
        raise BadInputError(f"--plot needs matplotlib: {WAY_TO_MATPLOTLIB}") from error
    matplotlib.use("Agg")
    matplotlib.rcParams |= STYLE
    return importlib.import_module("matplotlib.pyplot")


def prepare_plot(path: str | PathLike[str]) -> tuple[list[Path], ModuleType]:
    """Return the paths of a plot's files, and what draws it; refuse one that could not be made."""
    text = str(path)
    stem = Path(text).with_suffix("") if Path(text).suffix in METADATA else Path(text)
    if text.endswith("/") or stem.name in ("", ".."):
        raise BadInputError(f"--plot: expected a file name, e.g. reports/run, got {text!r}")
    paths = [prepare_target(f"{stem}{suffix}") for suffix in METADATA]
    return paths, load_pyplot()


def write_figure(figure: "Figure", paths: list[Path]) -> list[Path]:
    """Write a figure to each path, in the format that its suffix names, and close the figure."""
    for target in paths:
        drawn, kind = io.BytesIO(), target.suffix
        figure.savefig(drawn, dpi=150, metadata=METADATA[kind], format=kind.removeprefix("."))
        write_whole(target, drawn.getvalue())
    load_pyplot().close(figure)
    return paths


def plot_report(report: Mapping[str, Any], path: str | PathLike[str]) -> list[Path]:
    """Write PATH.png and PATH.svg and return the paths."""
    paths, pyplot = prepare_plot(path)
    figure, (rates, shares) = pyplot.subplots(1, 2, figsize=SIZE, layout="constrained")
    figure.get_layout_engine().set(w_pad=EDGE_INCHES)
    grouped = by_context(report["decode"])
    for colour, (context, rows) in zip(cycle(COLOURS), grouped.items(), strict=False):
        batches = [row["batch"] for row in rows]
        given: dict[str, Any] = {"label": f"context {context:,}", "color": colour, "marker": "o"}
        rates.plot(batches, [row["tokens_per_second"] for row in rows], **given)
        shares.plot(batches, [100 * row["share_of_floor"] for row in rows], **given)
    batches = sorted({row["batch"] for rows in grouped.values() for row in rows})
    dress_rates(rates, batches)
    dress_shares(shares, batches)
    figure.suptitle(f"{report['model']}, {report['engine']['device']}")
    return write_figure(figure, paths)


def by_context(rows: Iterable[Row]) -> dict[int, list[Row]]:
    grouped: dict[int, list[Row]] = {}
    for row in rows:
        if "skipped" not in row:
            grouped.setdefault(row["context"], []).append(row)
    return grouped


def dress_batches(axes: "Axes", batches: Sequence[int]) -> None:
    """Put the measured batch sizes on a logarithmic axis."""
    axes.set_xlabel("batch size")
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    if axes.lines:
        axes.legend(frameon=False, loc="lower right")


def dress_rates(axes: "Axes", batches: Sequence[int]) -> None:
    from matplotlib import ticker

    axes.set_title("decode tokens/s", loc="left", fontsize="medium")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    dress_batches(axes, batches)


def dress_shares(axes: "Axes", batches: Sequence[int]) -> None:
    axes.set_title("share of the memory roofline, %", loc="left", fontsize="medium")
    axes.set_ylim(0, 100)
    dress_batches(axes, batches)
