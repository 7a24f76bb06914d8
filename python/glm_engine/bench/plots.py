"""Two pictures of a report: tokens per second and share of the floor over the batch size."""

from pathlib import Path

from glm_engine.bench.report import prepare_target
from glm_engine.errors import BadInputError

SIZE = (9.6, 3.8)
METADATA = {".png": None, ".svg": {"Date": None}}


def load_pyplot():
    try:
        import matplotlib
    except ImportError as error:
        raise BadInputError("a plot needs matplotlib, which is not installed") from error
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    return pyplot


def prepare_plot(path):
    """Refuse a plot that could not be drawn or written; returns the paths of its files."""
    load_pyplot()
    return [prepare_target(Path(path).with_suffix(suffix)) for suffix in METADATA]


def plot_report(report, path):
    """Write PATH.png and PATH.svg; returns the paths."""
    paths, pyplot = prepare_plot(path), load_pyplot()
    figure, (rates, shares) = pyplot.subplots(1, 2, figsize=SIZE, layout="constrained")
    for context, rows in by_context(report["decode"]).items():
        batches = [row["batch"] for row in rows]
        label = f"context {context:,}"
        rates.plot(batches, [row["tokens_per_second"] for row in rows], "o-", label=label)
        shares.plot(batches, [100 * row["share_of_floor"] for row in rows], "o-", label=label)
    dress(rates, "decoded tokens/s", logarithmic=True)
    dress(shares, "% of the memory's floor", logarithmic=False)
    figure.suptitle(f"{report['model']}, {report['engine']['device']}")
    for target in paths:
        figure.savefig(target, dpi=150, metadata=METADATA[target.suffix])
    pyplot.close(figure)
    return paths


def by_context(rows):
    grouped = {}
    for row in rows:
        if "skipped" not in row:
            grouped.setdefault(row["context"], []).append(row)
    return grouped


def dress(axes, title, logarithmic):
    axes.set_xlabel("sequences decoded together")
    axes.set_ylabel(title)
    axes.set_xscale("log", base=2)
    if logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 100)
    if axes.lines:
        axes.legend()
