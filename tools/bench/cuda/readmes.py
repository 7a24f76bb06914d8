"""The sections of README files that repeat figures of the page."""

from collections.abc import Sequence
from pathlib import Path

from tools.bench import report
from tools.bench.cuda.page import Page
from tools.bench.cuda.results import ResultsError
from tools.bench.kernels.report import Line, number

HEADING = "## Figures on one H200"
KERNEL_TITLES = ("operation", "shape", "rows", "µs", "share of its ceiling", "library µs", "ratio")
SHOWN = {
    "experts": ("128 of", (16, 64, 256, 8192)),
    "linear": ("qkv FP8", (1, 64, 256, 8192)),
    "attention": ("96/8 heads, context 4096", (64,)),
    "logits": ("", (1, 64, 256)),
}
PREFILLED = "context 8192"
SHORT_COMMIT, WHOLE_COMMIT = 12, 40


def replaced(text: str, heading: str, body: Sequence[str]) -> str:
    """The text with what stands between a heading and the next of its level replaced."""
    lines, level = text.split("\n"), heading.split(" ")[0] + " "
    if lines.count(heading) != 1:
        raise ResultsError(f"expected the line {heading!r} once, got {lines.count(heading)}")
    begin = lines.index(heading) + 1
    later = [i for i, line in enumerate(lines) if i >= begin and line.startswith(level)]
    end = later[0] if later else len(lines)
    return "\n".join([*lines[:begin], "", *body, "", *lines[end:]]).rstrip("\n") + "\n"


def measured_when(page: Page) -> str:
    first, commit = page.results.first, page.commit
    shown = commit[:SHORT_COMMIT] if len(commit) == WHOLE_COMMIT else commit
    return f"{first['date'][:10]}, commit {shown}, {first['engine']['device']}"


def is_shown(line: Line, model: str) -> bool:
    if line.model != model or line.operation not in SHOWN:
        return False
    start, counts = SHOWN[line.operation]
    if line.operation == "attention" and line.shape.endswith(PREFILLED):
        return True
    is_whole = line.shape == start or line.operation != "attention"
    return is_whole and line.shape.startswith(start) and line.num_tokens in counts


def kernel_cells(line: Line) -> list[str]:
    share = "" if line.share is None else f"{100 * line.share:.0f} % ({line.bound})"
    head = (line.operation, line.shape, f"{line.num_tokens:,}", f"{line.microseconds:.1f}")
    return [*head, share, number(line.library_us), number(line.library_ratio)]


def of_kernels(page: Page, folder: str) -> list[str]:
    """Some lines of the kernel table, and where the others stand; nothing without a table."""
    if page.results.kernels is None:
        return []
    lines = page.results.kernels.lines
    shown = [kernel_cells(line) for line in lines if is_shown(line, lines[0].model)]
    intro = f"{lines[0].model}, {measured_when(page)}, by `python -m tools.bench.kernels`; a ratio "
    intro += "above 1 is a library that is slower. All lines, the library's names and the ceilings "
    intro += f"stand in [{page.name}-kernels.md]({folder}/{page.name}-kernels.md)."
    return [intro, "", *report.markdown_table(KERNEL_TITLES, shown)]


def write(path: Path, body: Sequence[str]) -> None:
    text = replaced(path.read_text(encoding="utf-8"), HEADING, body)
    path.write_text(text, encoding="utf-8")
