"""The page of docs/benchmarks: what was asked, what was measured, on what."""

from collections.abc import Sequence
from dataclasses import dataclass

from tools.bench import report
from tools.bench.cuda import peer, tables
from tools.bench.cuda.results import Results
from tools.bench.figures import Figure
from tools.bench.kernels import wanted

STEPS = (
    "One step of decode as the engine's loop makes it, by true forward passes of random tokens "
    "through random weights: the median time from one landed step to the next. The floor is the "
    "bytes that a step must read (weights of the experts that uniform routing is expected to "
    "choose, the other weights once, the cached keys and values) over the rate of a plain read, "
    "measured by the same process: {rate:.3f} TB/s. Asked for 1,024 and 8,192 tokens of context "
    "are four points less than for 128, and no more than four below what 128 reaches."
)
PREFILL = (
    "One sequence alone, from submission to its first token, the median of three. FLOPs: twice the "
    "active parameters of the linear layers times the tokens, and the causal half of attention."
)
OPERATIONS = (
    "Device time by events around each operation in eager steps, so without the overlap of one "
    "kernel's start with another's end that a graph has: the sum is more than the step above."
)
LOADING = (
    "A checkpoint written by `tools.checkpoint.synthetic`, read from the page cache into the "
    "device's packed order: `load_seconds` of `glm bench --model`."
)
KERNELS = (
    "Every operation over a table of shapes beside its ceiling and the library: "
    "[all {count} lines]({name}-kernels.md). Ceilings of the same run:"
)

BEHIND = "Lines of decode that are more than two percent behind the library:"


@dataclass(frozen=True)
class Page:
    """name: of the files; commit: what was measured; bounds: a page about what was missed."""

    name: str
    commit: str
    files: Sequence[str]
    results: Results
    figures: Sequence[Figure]
    has_bounds: bool


def facts(page: Page) -> list[str]:
    first, kernels = page.results.first, page.results.kernels
    engine = first["engine"]
    rows = [
        ("device", engine["device"]),
        ("date", first["date"].replace("T", " ").replace("+00:00", " UTC")),
        ("commit", page.commit),
        ("model", f"{first['model']}, {engine['num_layers']} layers, random weights"),
        ("python, cores", f"{first['python']}, {first['cores']}"),
    ]
    if kernels is not None:
        known = kernels.machine
        rows.append(("driver, CUDA, torch", ", ".join(versions(known))))
    commands = [one["command"] for one in every_source(page.results)]
    rows += [("command", f"`{command}`") for command in commands]
    rows.append(("files", ", ".join(f"[{name}]({name})" for name in page.files)))
    return report.markdown_table(("", ""), rows)


def versions(machine: dict) -> list[str]:
    return [str(machine.get(name, "unknown")) for name in ("driver", "cuda", "torch")]


def every_source(results: Results) -> list[dict]:
    reports = [*results.reports.values(), *results.loadings.values()]
    return reports + ([{"command": results.kernels.command}] if results.kernels else [])


def verdict(page: Page) -> list[str]:
    kept = sum(figure.is_kept for figure in page.figures)
    text = f"{kept} of {len(page.figures)} limits are kept."
    if page.has_bounds:
        text += f" What bounds the others, and what was tried: [{page.name}-bounds.md]"
        text += f"({page.name}-bounds.md)."
    return ["", "## What was asked", "", text, "", *tables.asked(page.figures)]


def steps(page: Page) -> list[str]:
    rate = page.results.first["read_bytes_per_second"] / 1e12
    picture = f"![Decode on {page.results.first['engine']['device']}]({page.name}-decode.png)"
    lines = ["", "## Whole steps of decode", "", STEPS.format(rate=rate), ""]
    return [*lines, *tables.decode(page.results), "", peer.TEXT, "", picture]


def operations(page: Page) -> list[str]:
    if not tables.profiled(page.results):
        return []
    picture = f"![Time of a step by operation]({page.name}-operations.png)"
    lines = ["", "## Where the time of a step goes", "", OPERATIONS, ""]
    return [*lines, *tables.operations(page.results), "", picture]


def prefill(page: Page) -> list[str]:
    return ["", "## Prefill", "", PREFILL, "", *tables.prefill(page.results)]


def loading(page: Page) -> list[str]:
    if not page.results.loadings:
        return []
    return ["", "## Loading", "", LOADING, "", *tables.loading(page.results)]


def kernels(page: Page) -> list[str]:
    if page.results.kernels is None:
        return []
    lines = page.results.kernels.lines
    text = KERNELS.format(count=len(lines), name=page.name)
    made = ["", "## Kernels", "", text, "", *tables.ceilings(page.results)]
    slower = wanted.slower(lines)
    return [*made, "", BEHIND, "", *tables.behind(slower)] if slower else made


def text(page: Page) -> str:
    lines = [f"# Figures on one {page.results.first['engine']['device']}", "", *facts(page)]
    for part in (verdict, steps, operations, prefill, loading, kernels):
        lines += part(page)
    return "\n".join(lines) + "\n"
