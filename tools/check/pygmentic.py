"""Lexers that Pygments keeps well, turned into this folder's tokens."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment
from pygments.token import String as StringToken

from tools.check.tokens import Kind, Position, Token

if TYPE_CHECKING:
    from pygments.token import _TokenType

    Piece = tuple[_TokenType, str]

PREPROCESSOR = (Comment.Preproc, Comment.PreprocFile)


def pygments_lexer(name: str) -> Callable[[str], Iterator[Token]]:
    """Make a lexer of the language that Pygments knows under this name."""

    def lex(text: str) -> Iterator[Token]:
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
        position = Position()
        for type_, piece in merged_strings(lexer.get_tokens(text)):
            if piece:
                yield Token(kind_of(type_), piece, position.line, position.column)
            position.advance(piece)

    return lex


def merged_strings(pairs: "Iterable[Piece]") -> "Iterator[Piece]":
    """Join neighbouring pieces of one type, so that no word is cut in two."""
    held_type: _TokenType | None = None
    held: list[str] = []
    for type_, piece in pairs:
        if held_type is not None and type_ is not held_type and held:
            yield held_type, "".join(held)
            held = []
        held_type = type_
        held.append(piece)
    if held_type is not None and held:
        yield held_type, "".join(held)


def kind_of(type_: "_TokenType") -> Kind:
    if type_ in Comment and type_ not in PREPROCESSOR:
        return Kind.COMMENT
    if type_ in StringToken:
        return Kind.STRING
    return Kind.CODE
