"""Lexers that Pygments keeps well, turned into this folder's tokens."""

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment
from pygments.token import String as StringToken

from tools.check.tokens import Kind, Position, Token

PREPROCESSOR = (Comment.Preproc, Comment.PreprocFile)


def pygments_lexer(name):
    """Make a lexer of the language that Pygments knows under this name."""

    def lex(text):
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
        position = Position()
        for type_, piece in merged_strings(lexer.get_tokens(text)):
            if piece:
                yield Token(kind_of(type_), piece, position.line, position.column)
            position.advance(piece)

    return lex


def merged_strings(pairs):
    """Join neighbouring pieces of one type, so that no word is cut in two."""
    held_type, held = None, []
    for type_, piece in pairs:
        if type_ is not held_type and held:
            yield held_type, "".join(held)
            held = []
        held_type = type_
        held.append(piece)
    if held:
        yield held_type, "".join(held)


def kind_of(type_):
    if type_ in Comment and type_ not in PREPROCESSOR:
        return Kind.COMMENT
    if type_ in StringToken:
        return Kind.STRING
    return Kind.CODE
