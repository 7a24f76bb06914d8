"""What commands print: tables, colours, progress and remarks, numbers with their units."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self, TextIO
from unicodedata import category

from glm_engine.core.reports import ShowProgress, Sizes, SizeSource

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

Kind = Literal["error", "warning", "good"]
WIDE, UNBOUNDED = 200, 100_000
LINE_LAYOUT = "\n\t"
UNSAFE_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
COLOURS: dict[Kind, str] = {"error": "red", "warning": "yellow", "good": "green"}
DUMB_TERMINALS = ("dumb", "unknown")
LINE_SECONDS = 10.0
FEWEST_GPUS = "the smallest number of GPUs (1, 2, 4 or 8) that can hold the model"
CUT_BY = ("num_pages", "memory")
SIZE_REASONS: dict[SizeSource, str] = {
    "option": "as requested",
    "model": "the model's maximum",
    "default": "the default",
    "num_pages": "limited by --num-pages",
    "memory": "limited by memory",
}


def is_screen(stream: TextIO) -> bool:
    """Say whether a stream is a terminal that can be drawn on."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in DUMB_TERMINALS


def can_dim(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether a stream has styles, so that thoughts can be dimmer than the answer."""
    is_plain = environment.get("NO_COLOR") or environment.get("TERM") in (None, "", "dumb")
    return stream.isatty() and not is_plain


def coloured(text: str, kind: Kind, stream: TextIO) -> str:
    """Return a text in the colour of its kind, one of COLOURS, for a terminal.

    In a pipe, with NO_COLOR or with TERM=dumb the text stays plain.
    """
    if os.environ.get("NO_COLOR") or not is_screen(stream):
        return text
    from click import style

    return style(text, fg=COLOURS[kind])


def tell(line: str) -> None:
    """Print a remark on standard error."""
    print(f"glm: {line}", file=sys.stderr, flush=True)


def verdict(text: str, is_good: bool) -> str:
    """Return the text of a verdict for standard output, green or red on a terminal."""
    return coloured(text, "good" if is_good else "error", sys.stdout)


def print_json(value: object) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def printable(text: str) -> str:
    """Return a text whose control characters are spelt out, so that no terminal obeys them."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def terminal_text(text: str) -> str:
    """Return a text of lines as a terminal may have it.

    What would move its cursor, colour it or turn its lines around is spelt out; line feeds, tabs,
    marks that join letters, and wide spaces stay.
    """
    if text.isprintable():
        return text
    return "".join(ascii(one)[1:-1] if is_unsafe(one) else one for one in text)


def shown_on(stream: TextIO, text: str) -> str:
    """Return a text for a stream: as a terminal may have it, or as it is for all others."""
    return terminal_text(text) if stream.isatty() else text


def is_unsafe(character: str) -> bool:
    """Say whether a terminal would do something else with a character than show it."""
    is_control = category(character) in UNSAFE_CATEGORIES and character not in LINE_LAYOUT
    return is_control or character in TURNING


def human_bytes(count: float, decimals: int = 1) -> str:
    """Return a byte count in decimal units with so many decimals, none for bytes."""
    size = float(count)
    for unit in UNITS:
        if abs(size) < 1000 or unit == UNITS[-1]:
            break
        size /= 1000
    return f"{round(count)} B" if unit == "B" else f"{size:.{decimals}f} {unit}"


def counted(number: int, thing: str) -> str:
    """Return how many things there are: 1 token, 1,200 tokens."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def human_count(count: int) -> str:
    """Return a count of parameters in thousands, millions or billions."""
    for divisor, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= divisor:
            return f"{count / divisor:.2f} {unit}"
    return str(count)


def rate(tokens: float, seconds: float) -> float | None:
    """Return tokens per second, or None where no time passed or no token came."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def human_number(value: float) -> str:
    """Return a count in whole numbers, a rate of counts with two decimals."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def human_rate(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.1f} tokens/s"


def print_fields(rows: Sequence[tuple[str, object]]) -> None:
    """Print names and values in two aligned columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def print_columns(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text in aligned columns; '>name' is right-aligned.

    For long lists: rich needs 1.7 ms a row, which is minutes for a whole checkpoint.
    """
    names = [title.removeprefix(">") for title in titles]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    align = [">" if title.startswith(">") else "<" for title in titles]
    line = "  ".join(f"{{:{side}{width}}}" for side, width in zip(align, widths, strict=True))
    print("\n".join(line.format(*row).rstrip() for row in [names, *rows]))


def make_table(*columns: str, title: str | None = None) -> "Table":
    """Return a rich table; a column written '>name' is right-aligned."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    return table


def print_table(table: "Table") -> None:
    """Print a table; where a terminal is too narrow for its numbers, the terminal wraps them."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else WIDE
    console = Console(file=sys.stdout, width=wide, highlight=False, markup=False)
    console.width = max(console.width, least_width(console, table))
    console.print(table, crop=False)


def least_width(console: "Console", table: "Table") -> int:
    """Columns of text that a table needs: columns of numbers are never cut or folded."""
    from rich.measure import Measurement

    unbounded = console.options.update(width=UNBOUNDED)
    for column in table.columns:
        if column.no_wrap:
            cells = (column.header, *column.cells)
            column.min_width = max(console.measure(one, options=unbounded).maximum for one in cells)
    return Measurement.get(console, unbounded, table).minimum


def world_size_choice(world_size: int) -> str:
    """Return the line that says how many GPUs the engine chose to use."""
    return f"world size {world_size}: {FEWEST_GPUS}"


def context_line(sizes: Sizes) -> str:
    """Return the maximum tokens of one request, and what limits them.

    `sizes` is what `plan` returns or what `Engine.info` does.
    """
    source, own = sizes["max_seq_from"], sizes["model_max_seq"]
    rest = "" if source == "model" else f" (the model's maximum is {own:,})"
    return f"{sizes['max_seq']:,} tokens, {SIZE_REASONS[source]}{rest}"


def batch_line(sizes: Sizes) -> str:
    """Return the maximum requests of one forward pass, and what limits them."""
    return f"{sizes['max_batch']:,}, {SIZE_REASONS[sizes['max_batch_from']]}"


def cut_line(sizes: Sizes) -> str | None:
    """Return a line if the context is shorter than the model's and nobody requested that."""
    return f"context length: {context_line(sizes)}" if sizes["max_seq_from"] in CUT_BY else None


class ProgressLines:
    """Prints a line on standard error every LINE_SECONDS until the block ends: done, total, rate,
    time left.

    With `is_recent` the rate is that since the last line, without it that since the stage began.
    The text of `running` says what runs; then the rate waits until something is done.
    """

    def __init__(
        self,
        stage: str,
        human: Callable[[float], str],
        total: int | None = None,
        is_recent: bool = False,
        running: object = None,
    ) -> None:
        self.stage, self.human, self.total, self.is_recent = stage, human, total, is_recent
        self.running = running
        self.done, self.since = 0, (time.monotonic(), 0)
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, name="glm-progress", daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()

    def update(self, done: int, total: int, stage: str) -> None:
        stage = stage or self.stage
        if stage != self.stage:
            self.since = (time.monotonic(), done)
        self.done, self.total, self.stage = done, total or None, stage

    def advance(self) -> None:
        self.done += 1

    def run(self) -> None:
        while not self.is_over.wait(LINE_SECONDS):
            tell(self.line(time.monotonic()))

    def line(self, now: float) -> str:
        done, total = self.done, self.total
        began, before = self.since
        per_second = max(done - before, 0) / max(now - began, 1e-9)
        if self.is_recent:
            self.since = (now, done)
        if total is None:
            return f"{self.stage}: {self.human(done)}"
        left = timedelta(seconds=round((total - done) / per_second)) if per_second else "unknown"
        progress = f"{self.human(done)} of {self.human(total)}"
        if self.running is not None:
            progress = f"{self.running}, {progress} finished"
            if not done:
                return f"{self.stage}: {progress}"
        return f"{self.stage}: {progress}, {self.human(per_second)}/s, time left {left}"


@contextmanager
def drawn_progress(
    stage: str, total: int | None, *names: str, running: object = None
) -> Iterator[tuple["Progress", "TaskID"]]:
    """Give a bar on the terminal, and its task, with these columns of rich and the time left."""
    from rich import progress
    from rich.console import Console

    described = progress.TextColumn("{task.description}"), progress.BarColumn()
    columns = [getattr(progress, name)() for name in (*names, "TimeRemainingColumn")]
    if running is not None:
        columns.append(progress.TextColumn("{task.fields[running]}"))
    console = Console(file=sys.stderr)
    with progress.Progress(*described, *columns, console=console, transient=True) as bars:
        yield bars, bars.add_task(stage, total=total, running=running)


@contextmanager
def bytes_progress(quiet: bool) -> Iterator[ShowProgress | None]:
    """Give a function (bytes_done, bytes_total, stage) that shows progress on standard error.

    A terminal shows a bar, a file or pipe gets a line every LINE_SECONDS.
    """
    if quiet:
        yield None
    elif is_screen(sys.stderr):
        with drawn_progress("loading", None, "DownloadColumn", "TransferSpeedColumn") as drawn:
            bars, task = drawn
            yield lambda done, total, stage: bars.update(
                task, completed=done, total=total or None, description=stage or "loading"
            )
    else:
        with ProgressLines("loading", human_bytes, is_recent=True) as lines:
            yield lines.update


@contextmanager
def count_progress(
    total: int, description: str, quiet: bool, running: object = None
) -> Iterator[Callable[[], None]]:
    """Give a function that counts one more thing as done, shown as `bytes_progress` shows bytes.

    running: what says as a text, each time that it is shown, how many things run.
    """
    if quiet:
        yield lambda: None
    elif is_screen(sys.stderr):
        with drawn_progress(description, total, "MofNCompleteColumn", running=running) as drawn:
            bars, task = drawn
            yield lambda: bars.advance(task)
    else:
        with ProgressLines(description, human_number, total, running=running) as lines:
            yield lines.advance
