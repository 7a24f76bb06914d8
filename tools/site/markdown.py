"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence
from html import escape

BAR = "&#124;"


def cell(text: str) -> str:
    """A text as it may stand in a table."""
    return " ".join(escape(text, quote=False).replace("|", BAR).split())


def code(text: str) -> str:
    """A text as code in a table."""
    return f"<code>{escape(text, quote=False).replace('|', BAR)}</code>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [titles, ["---"] * len(titles), *rows]
    return ["", *(f"| {' | '.join(line)} |" for line in lines), ""]


def page(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
