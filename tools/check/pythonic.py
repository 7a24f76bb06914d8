"""Python through its own tokenizer and parser."""

import ast
import io
import token
import tokenize
from collections.abc import Container, Iterator

from tools.check.tokens import Kind, LexingError, Token

STRING_TOKENS = {
    number
    for number, name in token.tok_name.items()
    if name == "STRING" or name.startswith(("FSTRING_", "TSTRING_"))
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FIELDS = (ast.Assign, ast.AnnAssign)


def lex_python(text: str) -> Iterator[Token]:
    """Yield the tokens of a module but three dots in types; strings nothing reads are comments."""
    tree = parse(text)
    idle = {(node.lineno, node.col_offset) for node in idle_strings(tree)}
    dots = {(node.lineno, node.col_offset) for node in subscript_dots(tree)}
    try:
        for found in tokenize.generate_tokens(io.StringIO(text).readline):
            if found.string and found.start not in dots:
                yield Token(
                    kind_of(found, idle),
                    found.string,
                    found.start[0],
                    found.start[1] + 1,
                )
    except (tokenize.TokenError, SyntaxError) as error:
        raise LexingError(1, f"not valid Python: {error}") from error


def kind_of(found: tokenize.TokenInfo, idle: Container[tuple[int, int]]) -> Kind:
    if found.type == tokenize.COMMENT:
        return Kind.COMMENT
    if found.type in STRING_TOKENS:
        return Kind.COMMENT if found.start in idle else Kind.STRING
    return Kind.CODE


def parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise LexingError(line, f"not valid Python: {error}") from error


def idle_strings(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield string statements that are neither a docstring nor a field's text."""
    for node in ast.walk(tree):
        for body in statement_lists(node):
            before: ast.stmt | None = None
            for statement in body:
                if is_string(statement) and not is_documentation(node, before):
                    yield statement
                before = statement


def subscript_dots(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the three dots that stand in a subscript, as a tuple of any length has them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            for part in ast.walk(node.slice):
                if isinstance(part, ast.Constant) and part.value is Ellipsis:
                    yield part


def statement_lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body


def is_string(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def is_documentation(owner: ast.AST, before: ast.stmt | None) -> bool:
    if before is None:
        return isinstance(owner, DOCUMENTED)
    return isinstance(owner, ast.Module | ast.ClassDef) and isinstance(before, FIELDS)
