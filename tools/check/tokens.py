"""The one shape in which every lexer hands over what it read."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    COMMENT = "comment"
    STRING = "string"
    CODE = "code"


@dataclass(frozen=True)
class Token:
    """A piece of source text; `line` and `column` count from 1."""

    kind: Kind
    text: str
    line: int
    column: int


class LexingError(Exception):
    """The text is not of the language that its name promises."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def place_after(text: str, line: int, column: int) -> tuple[int, int]:
    """Return the line and the column behind a text that begins at a line and a column."""
    newlines = text.count("\n")
    if newlines:
        return line + newlines, len(text) - text.rfind("\n")
    return line, column + len(text)
