"""What commands print: tables and bars by rich, numbers with their units."""

import json
import sys
from contextlib import contextmanager
from unicodedata import category

WIDE, UNBOUNDED = 200, 100_000
LINE_LAYOUT = "\n\t"
UNSAFE_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
TURNING = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def print_json(value):
    """Print one JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def printable(text):
    """Return a text whose control characters are spelt out, so that no terminal obeys them."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def terminal_text(text):
    """Return a text of lines as a terminal may have it.

    What would move its cursor, colour it or turn its lines around is spelt out; line feeds, tabs,
    marks that join letters, and wide spaces stay.
    """
    if text.isprintable():
        return text
    return "".join(ascii(one)[1:-1] if is_unsafe(one) else one for one in text)


def shown_on(stream, text):
    """Return a text for a stream: as a terminal may have it, or as it is for all others."""
    return terminal_text(text) if stream.isatty() else text


def is_unsafe(character):
    """Say whether a terminal would do something else with a character than show it."""
    if character in LINE_LAYOUT:
        return False
    return category(character) in UNSAFE_CATEGORIES or character in TURNING


def human_bytes(count):
    """Return a byte count in decimal units with at most one decimal."""
    size = float(count)
    for unit in UNITS:
        if abs(size) < 1000 or unit == UNITS[-1]:
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def human_count(count):
    """Return a count of parameters in thousands, millions or billions."""
    for divisor, unit in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= divisor:
            return f"{count / divisor:.2f} {unit}"
    return str(count)


def rate(tokens, seconds):
    """Return tokens per second, or None where no time passed or no token came."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def human_rate(value):
    return "not measured" if value is None else f"{value:,.1f} tokens/s"


def print_fields(rows):
    """Print names and values in two aligned columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


def print_columns(titles, rows):
    """Print rows of text in aligned columns; '>name' is right-aligned.

    For long lists: rich needs 1.7 ms a row, which is minutes for a whole checkpoint.
    """
    names = [title.removeprefix(">") for title in titles]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    align = [">" if title.startswith(">") else "<" for title in titles]
    line = "  ".join(f"{{:{side}{width}}}" for side, width in zip(align, widths, strict=True))
    text = "\n".join(line.format(*row).rstrip() for row in [names, *rows])
    sys.stdout.write(f"{text}\n")


def make_table(*columns, title=None):
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


def print_table(table):
    """Print a table; where a terminal is too narrow for its numbers, the terminal wraps them."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else WIDE
    console = Console(file=sys.stdout, width=wide, highlight=False, markup=False)
    console.width = max(console.width, least_width(console, table))
    console.print(table, crop=False)


def least_width(console, table):
    """Columns of text that a table needs: columns of numbers are never cut or folded."""
    from rich.measure import Measurement

    unbounded = console.options.update(width=UNBOUNDED)
    for column in table.columns:
        if column.no_wrap:
            cells = (column.header, *column.cells)
            column.min_width = max(console.measure(one, options=unbounded).maximum for one in cells)
    return Measurement.get(console, unbounded, table).minimum


def world_size_choice(world_size):
    """Return what is said where the engine chose how many devices to take."""
    return f"world size {world_size}: the least of 1, 2, 4 and 8 GPUs that holds the model"


@contextmanager
def bytes_progress(quiet):
    """Give a function (bytes_done, bytes_total, stage) that draws on standard error."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
    )
    with progress.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task("loading", total=None)
        yield lambda done, total, stage: bars.update(
            task, completed=done, total=total or None, description=stage or "loading"
        )


@contextmanager
def count_progress(total, description, quiet):
    """Give a function that advances a bar of things done by one."""
    if quiet or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
    )
    with progress.Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task(description, total=total)
        yield lambda: bars.advance(task)
