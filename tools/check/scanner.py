"""Exact scanners for languages whose Pygments lexers are missing or err.

Each language is one table of regular expressions, tried in order at each
offset. What no row takes is one character of code.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from tools.check.tokens import Kind, LexingError, Token, place_after

UNTERMINATED: Literal["unterminated"] = "unterminated"
Found = Kind | Literal["unterminated"]
Rows = Sequence[tuple[Found, re.Pattern[str]]]


def rows(*table: tuple[Found, str]) -> Rows:
    flags = re.DOTALL | re.MULTILINE
    return [(kind, re.compile(pattern, flags)) for kind, pattern in table]


C_FAMILY = rows(
    (Kind.COMMENT, r"^[ \t]*#[ \t]*if[ \t]+(0|false)\b[^\n]*"),
    (Kind.CODE, r"#[ \t]*include[ \t]*<[^>\n]*>"),
    (Kind.COMMENT, r"//(?:\\\r?\n|[^\n])*"),
    (Kind.COMMENT, r"/\*.*?\*/"),
    (UNTERMINATED, r"/\*"),
    (Kind.STRING, r'(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\(.*?\)(?P=fence)"'),
    (Kind.STRING, r'(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"'),
    (Kind.STRING, r"(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'"),
    (Kind.CODE, r"\.?\d(?:[eEpP][+-]|'?\w|\.)*"),
    (Kind.CODE, r"\w+|[ \t]+"),
    (Kind.CODE, r"\.\.\."),
)

TERRA = rows(
    (Kind.COMMENT, r"--\[(?P<level>=*)\[.*?\](?P=level)\]"),
    (UNTERMINATED, r"--\[=*\["),
    (Kind.COMMENT, r"--[^\n]*"),
    (Kind.STRING, r"\[(?P<level>=*)\[.*?\](?P=level)\]"),
    (Kind.STRING, r'"(?:\\.|[^"\\\n])*"'),
    (Kind.STRING, r"'(?:\\.|[^'\\\n])*'"),
    (Kind.CODE, r"\w+|[ \t]+"),
    (Kind.CODE, r"\.\.\."),
)

FUTHARK = rows(
    (Kind.COMMENT, r"--[^\n]*"),
    (Kind.STRING, r'"(?:\\.|[^"\\])*"'),
    (Kind.CODE, r"[A-Za-z_][\w']*"),
    (Kind.STRING, r"'(?:\\[^\n']+|\\'|[^\\'\n])'"),
    (Kind.CODE, r"[\d.][\w.]*|[ \t]+"),
)

HASH_LINES = rows(
    (Kind.COMMENT, r"^#[^\n]*"),
    (Kind.CODE, r"[^\n]+"),
)

INI = rows(
    (Kind.COMMENT, r"(?:^|(?<=\s))[#;][^\n]*"),
    (Kind.CODE, r"[^\s]+"),
)

HASH_AFTER_SPACE = rows(
    (Kind.COMMENT, r"(?:^|(?<=\s))#[^\n]*"),
    (Kind.CODE, r"[^\s]+"),
)


def scanner(table: Rows) -> Callable[[str], Iterator[Token]]:
    """Make a lexer, a function from text to tokens, of a table of rows."""

    def scan(text: str) -> Iterator[Token]:
        offset, line, column = 0, 1, 1
        while offset < len(text):
            kind, piece = first_match(table, text, offset)
            if not isinstance(kind, Kind):
                raise LexingError(line, f"{piece!r} is never closed")
            yield Token(kind, piece, line, column)
            line, column = place_after(piece, line, column)
            offset += len(piece)

    return scan


def first_match(table: Rows, text: str, offset: int) -> tuple[Found, str]:
    for kind, pattern in table:
        match = pattern.match(text, offset)
        if match:
            return kind, match.group()
    return Kind.CODE, text[offset]
