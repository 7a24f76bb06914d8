"""`python -m tools.bench.figures`: the tables of docs/figures.md, from the JSON files beside it.

The text of the page is written by hand. Between its lines `<!--NAME-->` and `<!--end-->` is what
`TABLES[NAME]` makes of the files in docs/benchmarks.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from glm_engine.core.files import read_object
from tools.bench.command import errors_in_one_line
from tools.bench.peers import results
from tools.bench.peers.loads import LOADS
from tools.bench.processes import ROOT
from tools.bench.report import Table, counted, markdown
from tools.bench.serving import figures_of

PAGE = ROOT / "docs" / "figures.md"
PART = re.compile(r"^<!--([a-z-]+)-->\n.*?^<!--end-->$", re.M | re.S)
STALE = 1
FOLDER = ROOT / "docs" / "benchmarks"
PEERS = "comparison"
ABSENT = "\N{EN DASH}"
BATCHES = (1, 8, 16, 64, 128, 256)
PROMPTS = (1024, 8192)
CONTEXT, LONG_CONTEXT = 128, 8192
ONE_H200 = "One NVIDIA H200"
AIR, GLM_4_7 = "GLM-4.5-Air", "GLM-4.7"
KERNELS = (
    ("experts", "128 of 4096x1408"),
    ("linear", "qkv FP8 14336x4096"),
    ("route", "128x4096"),
    ("attention", "96/8 heads, context 4096"),
    ("logits", "151552x4096"),
)
KERNEL_ROWS = (1, 16, 64, 256)
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Decode:
    """A row of decode: what ran, the files of which the fastest counts, the context."""

    title: str
    files: Sequence[str]
    context: int = CONTEXT


VLLM_ON_FOUR = [
    f"comparison/vllm-four-gpus-{way}" for way in ("triton", "cutlass", "expert-parallel")
]
DECODES = (
    Decode(f"{AIR}, one H200", ["comparison/glm-decode"]),
    Decode(f"{AIR}, one H200, context 8,192", ["h200-air-long"], LONG_CONTEXT),
    Decode(f"{AIR}, two H200s", ["two-h200"]),
    Decode(f"{AIR}, two H200s, vLLM", ["comparison/vllm-two-gpus"]),
    Decode(f"{AIR}, two H100s", ["two-h100"]),
    Decode(f"{GLM_4_7}, four H200s", ["four-h200-whole"]),
    Decode(f"{GLM_4_7}, four H200s, `tensor_parallel`", ["four-h200-width"]),
    Decode(f"{GLM_4_7}, four H200s, vLLM", VLLM_ON_FOUR),
    Decode(f"{GLM_4_7}, four H200s, context 8,192", ["four-h200-8k-bf16"], LONG_CONTEXT),
    Decode("the same, FP8 KV cache", ["four-h200-8k-fp8"], LONG_CONTEXT),
)


def read(name: str) -> Document:
    return read_object(FOLDER / f"{name}.json")


def source(machine: str, names: Iterable[str]) -> str:
    """The machine and the dates of files."""
    days = sorted({day for name in names for day in days_of(read(name))})
    return f"{machine}, {', '.join(days)}"


def days_of(document: Document) -> Sequence[str]:
    """The dates that a file states; of a report, its own or its machine's."""
    stated = document.get("date") or document.get("machine", {}).get("date", "")
    return document.get("dates") or [stated[:10]]


def link(name: str, text: str) -> str:
    return f"[{text}](benchmarks/{name}.json)"


def shown(table: Table, machine: str, *names: str) -> list[str]:
    """A table and, below it, the machine, the dates and the files of its numbers."""
    files = ", ".join(link(name, Path(name).name) for name in names)
    return [*markdown(table), "", f"{source(machine, names)}: {files}."]


def three_digits(value: float) -> str:
    """A number with three significant digits, or all those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def percent(share: float | None) -> str:
    return "" if share is None else f" ({100 * share:.0f}%)"


def beside(parts: Iterable[str]) -> str:
    """The machine, the dates and the files of parts of the comparison."""
    paths = [path for part in parts for path in (FOLDER / PEERS).glob(f"*-{part}*.json")]
    stated = source(ONE_H200, [f"{PEERS}/{path.stem}" for path in paths])
    patterns = ", ".join(f"`*-{part}*.json`" for part in parts)
    return f"{stated}: {patterns} in `docs/benchmarks/{PEERS}`."


def peers_decode() -> list[str]:
    table = results.decode_table(results.read(FOLDER / PEERS))
    return [*markdown(table), "", beside(["decode"])]


def peers_loads() -> list[str]:
    """The loads of all engines, and the long one where prompts are not split."""
    sides, name = results.read(FOLDER / PEERS), f"{PEERS}/glm-long-no-budget"
    [point] = read(name)["points"]
    whole = (f"long, {point['rate']:g}/s", "glm-engine, `--step-budget 0`", *results.cells(point))
    loads = markdown([*results.load_table(sides), whole])
    return [*loads, "", *markdown(results.flood_table(sides)), "", beside(LOADS)]


def batch_invariance() -> list[str]:
    name = f"{PEERS}/batch-invariance"
    rows = [
        (one["engine"], f"{one['num_compared']}", f"{one['num_different']}")
        for one in read(name)["engines"]
    ]
    return shown([("engine", "answers compared", "different"), *rows], ONE_H200, name)


def decode() -> list[str]:
    titles = counted("decode, tokens/s", "batch {}", BATCHES)
    titles = (*titles, *(f"prefill of {count:,}, ms" for count in PROMPTS))
    table = [titles, *(decode_row(one) for one in DECODES)]
    names = [name for one in DECODES for name in one.files]
    return [*markdown(table), "", f"{source('GPUs as named', names)}: linked above."]


def decode_row(one: Decode) -> Sequence[str]:
    """Tokens/s with the share of the floor where a file states it, and milliseconds of prompts."""
    best: dict[int, tuple[float, str]] = {}
    for row in (row for name in one.files for row in decode_points(read(name), one.context)):
        best[row["batch"]] = max(best.get(row["batch"], (0.0, "")), rate_of(row))
    rates = (best.get(batch) for batch in BATCHES)
    first, *others = one.files
    links = [link(first, one.title), *(link(name, f"{i}") for i, name in enumerate(others, 2))]
    return (
        ", ".join(links),
        *(ABSENT if found is None else f"{found[0]:,.0f}{found[1]}" for found in rates),
        *prompt_cells(one),
    )


def decode_points(document: Document, context: int) -> list[Document]:
    """What was measured at a context; a peer's rows are of the shortest."""
    rows = document.get("decode") or document["rows"]
    asked = [row for row in rows if row.get("context", CONTEXT) == context]
    return [row for row in asked if "skipped" not in row]


def rate_of(row: Document) -> tuple[float, str]:
    rate = row.get("tokens_per_second") or row["decode_tok_s"]
    floor = row.get("floor_tokens_per_second")
    return rate, percent(rate / floor if floor else row.get("share_of_floor"))


def prompt_cells(one: Decode) -> list[str]:
    """Milliseconds from the submission of a prompt to its first token."""
    rows = read(one.files[0]).get("prefill", ()) if one.context == CONTEXT else ()
    seconds = {
        row["tokens"]: row.get("seconds") or row["tokens"] / row["tokens_per_second"]
        for row in rows
    }
    return [three_digits(1e3 * seconds[count]) if count in seconds else ABSENT for count in PROMPTS]


def kernels() -> list[str]:
    """Microseconds of Air's kernels and their share of a plain read."""
    name = "h200-kernels"
    lines = [line for line in read(name)["lines"] if line["model"] == AIR]
    found = {(one["operation"], one["shape"], one["num_tokens"]): one for one in lines}
    rows = [
        (f"{kind} {shape}", *(kernel_cell(found.get((kind, shape, n))) for n in KERNEL_ROWS))
        for kind, shape in KERNELS
    ]
    return shown([counted("µs", "rows: {}", KERNEL_ROWS), *rows], ONE_H200, name)


def kernel_cell(line: Document | None) -> str:
    if line is None:
        return ABSENT
    return three_digits(line["microseconds"]) + percent(line["share"])


def mixed() -> list[str]:
    """Milliseconds of passes that carry a prompt, and the share of their floor."""
    name = "h200-mixed"
    found = {(row["batch"], row["prompt"]): row for row in read(name)["rows"]}
    batches, prompts = (sorted({key[place] for key in found}) for place in range(2))
    rows = [
        (f"{batch}", *(mixed_cell(found[batch, prompt]) for prompt in prompts)) for batch in batches
    ]
    return shown([counted("decode rows, ms", "prompt tokens: {}", prompts), *rows], ONE_H200, name)


def mixed_cell(row: Document) -> str:
    return f"{row['ms']:.1f}{percent(row['floor_ms'] / row['ms'])}"


def exchanges() -> list[str]:
    ranks = read("exchanges")["ranks"]
    counts = [row["rows"] for row in next(iter(ranks.values()))]
    rows = [
        (f"{count} H200s, {title}", *(three_digits(row[key]) for row in ranks[count]))
        for count in ranks
        for title, key in (("glm-engine", "us"), ("NCCL", "nccl_us"))
    ]
    return shown([counted("µs", "rows: {}", counts), *rows], "NVIDIA H200s", "exchanges")


def serving() -> list[str]:
    titles = (
        "256 streams",
        "server, tokens/s",
        "engine alone",
        "share",
        "CPU of HTTP, µs per token",
    )
    named = {
        f"{AIR}, one H200": "serving-h200-acceptance-cuda",
        "`capitals`, one CPU thread": "serving-h200-acceptance-cpu",
    }
    rows = []
    for title, name in named.items():
        sides = read(name)["sections"][0]["series"]
        server, own, share, http, *_ = (
            figure.value for figure in figures_of(sides["server"], sides["engine"])
        )
        rows.append((title, f"{server:,.0f}", f"{own:,.0f}", f"{100 * share:.0f}%", f"{http:.0f}"))
    return shown([titles, *rows], "One NVIDIA H200 and its host", *named.values())


def several_gpus() -> list[str]:
    titles = ("10 requests/s", "tokens/s", "first token p50, p99, ms", "per token p50, p99, ms")
    named = {f"{AIR}, two H200s": "two-h200-load", f"{GLM_4_7}, four H200s": "four-h200-load"}
    points = {title: read(name)["points"][0] for title, name in named.items()}
    rows = [
        (
            title,
            f"{point['output_tokens_per_second']:,.0f}",
            *(
                f"{three_digits(point[key]['p50'])}, {three_digits(point[key]['p99'])}"
                for key in ("ttft_ms", "tpot_ms")
            ),
        )
        for title, point in points.items()
    ]
    return shown([titles, *rows], "NVIDIA H200s", *named.values())


TABLES: dict[str, Callable[[], list[str]]] = {
    "peers-decode": peers_decode,
    "peers-loads": peers_loads,
    "batch-invariance": batch_invariance,
    "decode": decode,
    "kernels": kernels,
    "mixed": mixed,
    "exchanges": exchanges,
    "serving": serving,
    "several-gpus": several_gpus,
}


def renewed(text: str, tables: Mapping[str, Callable[[], list[str]]]) -> str:
    """The text of a page with its tables made anew; raises `ValueError` unless it has each once."""
    names = [found[1] for found in PART.finditer(text)]
    if sorted(names) != sorted(tables):
        raise ValueError(f"expected the tables {', '.join(tables)}, got {', '.join(names)}")

    def made(found: re.Match[str]) -> str:
        return "\n".join([f"<!--{found[1]}-->", "", *tables[found[1]](), "", "<!--end-->"])

    return PART.sub(made, text)


@click.command()
@click.option("--write", "is_written", is_flag=True, help="Write the page.")
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    default=PAGE,
    help="Page with the tables [default: docs/figures.md].",
)
def main(is_written: bool, page: Path) -> None:
    """Make the tables of docs/figures.md; without --write, end with 1 where the page has others."""
    with errors_in_one_line("tools.bench.figures", OSError, ValueError):
        text = page.read_text(encoding="utf-8")
        wanted = renewed(text, TABLES)
        if is_written:
            page.write_text(wanted, encoding="utf-8")
        elif wanted != text:
            click.echo(f"{page}: its tables are not those of the files; use --write", err=True)
            sys.exit(STALE)


if __name__ == "__main__":
    main()
