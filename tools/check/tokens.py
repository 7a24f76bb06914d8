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


class Position:
    """Walks through a text and turns offsets into lines and columns."""

    def __init__(self) -> None:
        self.line = 1
        self.column = 1

    def advance(self, text: str) -> None:
        newlines = text.count("\n")
        if newlines:
            self.line += newlines
            self.column = len(text) - text.rfind("\n")
        else:
            self.column += len(text)
