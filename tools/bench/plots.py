"""A picture for each section, as SVG and PNG."""

from pathlib import Path
from statistics import median

from tools.bench.figures import Section

COLOURS = {"engine": "#1f5fa8", "transformers": "#c0772d"}
SIZE = (6.4, 3.6)


def plot_planning(axes, section: Section) -> None:
    series = section.series["microseconds"]
    axes.boxplot(list(series.values()), tick_labels=list(series), whis=(1, 99), showfliers=False)
    axes.set_xlabel("decode rows of a context")
    axes.set_ylabel("µs a step (whiskers: 1st to 99th percentile)")
    axes.set_ylim(bottom=0)


def plot_index(axes, section: Section) -> None:
    for name, seconds in section.series.items():
        axes.plot(range(1, len(seconds) + 1), seconds, "o-", label=name)
    axes.axhline(section.figures[0].limit, color="grey", linestyle="--", label="limit")
    axes.set_xlabel("run in one process")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)
    axes.legend()


def plot_decoding(axes, section: Section) -> None:
    batches, width = list(section.series), 0.38
    for offset, (side, colour) in zip((-0.5, 0.5), COLOURS.items(), strict=True):
        rows = [section.series[batch][f"{side} decode_tokens_per_second"] for batch in batches]
        middle = [median(row) for row in rows]
        spread = [
            [mid - min(row) for mid, row in zip(middle, rows, strict=True)],
            [max(row) - mid for mid, row in zip(middle, rows, strict=True)],
        ]
        places = [index + offset * width for index in range(len(batches))]
        axes.bar(places, middle, width, yerr=spread, label=side, color=colour, capsize=3)
    axes.set_xticks(range(len(batches)), batches)
    axes.set_xlabel("sequences decoded together")
    axes.set_ylabel("decoded tokens/s (median, range)")
    axes.legend()


def plot_memory(axes, section: Section) -> None:
    series, left = section.series, 0.0
    bars = {"smoke": ["imports"], "limit": ["imports", "checkpoint", "pool", "allowance"]}
    axes.barh(["smoke"], [series["smoke"] / 1e6], color="#1f5fa8")
    for part in bars["limit"]:
        axes.barh(["limit"], [series[part] / 1e6], left=left, label=part)
        left += series[part] / 1e6
    axes.set_xlabel("MB")
    axes.legend(fontsize="small")


PLOTS = {
    "planning": plot_planning,
    "index": plot_index,
    "decoding": plot_decoding,
    "memory": plot_memory,
}


def draw(section: Section, folder: Path) -> list[Path]:
    """Write the section's picture and return its files; the SVG holds texts as texts, no date."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": section.name, "svg.fonttype": "none"}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=SIZE, layout="constrained")
    PLOTS[section.name](axes, section)
    axes.set_title(section.title)
    paths = [folder / f"acceptance-{section.name}.{suffix}" for suffix in ("svg", "png")]
    figure.savefig(paths[0], metadata={"Date": None})
    figure.savefig(paths[1], dpi=130)
    pyplot.close(figure)
    return paths
