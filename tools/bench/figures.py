"""`python -m tools.bench.figures`: the tables of docs/figures.md, from the JSON files beside it.

The text of the page is written by hand. Between its lines `<!--NAME-->` and `<!--end-->` is what
`tables.TABLES[NAME]` makes of the files in docs/benchmarks.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import click

from tools.bench.one_line import errors_in_one_line
from tools.bench.processes import ROOT
from tools.bench.tables import TABLES

PAGE = ROOT / "docs" / "figures.md"
PART = re.compile(r"^<!--([a-z-]+)-->\n.*?^<!--end-->$", re.M | re.S)
STALE = 1


def renewed(text: str, tables: dict[str, Callable[[], list[str]]]) -> str:
    """The text of a page with its tables made anew; raises `ValueError` unless it has each once."""
    names = [found[1] for found in PART.finditer(text)]
    if sorted(names) != sorted(tables):
        raise ValueError(f"expected the tables {', '.join(tables)}, got {', '.join(names)}")

    def made(found: re.Match) -> str:
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
