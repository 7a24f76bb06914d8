"""One picture of all engines: decode, and what a client waits for under load."""

from collections.abc import Sequence
from pathlib import Path

from tools.bench.peers.results import MODEL_TITLE, Side, named

SIZE = (9.6, 3.2)
COLOURS = {"glm": "#1f5fa8", "vllm": "#c0562d", "sglang": "#8a8a8a"}
BATCH, LOAD, RATE = 64, "short", 16
PANELS = (
    (f"Decode, {BATCH} sequences", "tokens/s (more is better)", "{:,.0f}"),
    ("Time to first token", f"ms at {RATE} requests/s (less is better)", "{:.0f}"),
    ("Time per output token", f"ms at {RATE} requests/s (less is better)", "{:.1f}"),
)


def figures_of(side: Side) -> tuple[float, float, float]:
    """The figures of the three panels, all of one configuration."""
    [point] = [point for point in side.loads[LOAD] if point["rate"] == RATE]
    return side.decode[BATCH], point["ttft_ms"]["p50"], point["tpot_ms"]["p50"]


def draw(sides: dict[str, Side], device: str, path: Path) -> Sequence[Path]:
    """Write PATH.png and PATH.svg."""
    from glm_engine.bench import plots

    paths, pyplot = plots.prepare_plot(path)
    figure, panels = pyplot.subplots(1, len(PANELS), figsize=SIZE, layout="constrained")
    columns = zip(*(figures_of(side) for side in sides.values()), strict=True)
    colours = [COLOURS[name] for name in sides]
    for axes, (title, unit, form), values in zip(panels, PANELS, columns, strict=True):
        bars = axes.bar([side.title for side in sides.values()], values, color=colours, width=0.65)
        axes.bar_label(bars, [form.format(value) for value in values], padding=2)
        axes.set_title(title, fontsize=11)
        axes.set_ylabel(unit, fontsize=9)
        axes.set_ylim(top=1.15 * max(values))
        axes.grid(visible=False, axis="x")
    versions = ", ".join(named(side) for side in sides.values())
    figure.suptitle(f"{MODEL_TITLE}, {device}: {versions}", fontsize=11)
    return plots.write_figure(figure, paths)
