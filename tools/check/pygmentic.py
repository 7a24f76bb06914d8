"""Lexers that Pygments keeps well, turned into this folder's tokens."""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment
from pygments.token import String as StringToken

from tools.check.tokens import Kind, Token, place_after

if TYPE_CHECKING:
    from pygments.token import _TokenType

PREPROCESSOR = (Comment.Preproc, Comment.PreprocFile)


def pygments_lexer(name: str) -> Callable[[str], Iterator[Token]]:
    """Make a lexer of the language that Pygments knows under this name.

    Neighbouring pieces of one type are one token, so that no word is cut in two.
    """

    def lex(text: str) -> Iterator[Token]:
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
        line, column = 1, 1
        for type_, run in groupby(lexer.get_tokens(text), key=itemgetter(0)):
            piece = "".join(part for _, part in run)
            if piece:
                yield Token(kind_of(type_), piece, line, column)
            line, column = place_after(piece, line, column)

    return lex


def kind_of(type_: "_TokenType") -> Kind:
    if type_ in Comment and type_ not in PREPROCESSOR:
        return Kind.COMMENT
    if type_ in StringToken:
        return Kind.STRING
    return Kind.CODE
