"""The rules themselves: functions from tokens or text to violations."""

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from tools.check.languages import Language
from tools.check.tokens import Kind, Token, place_after

ELLIPSIS = re.compile(r"\.{3}|\u2026")
ELLIPSIS_CHARACTER = re.compile(r"\u2026")
ALPHABETIC = re.compile(r"[A-Za-z]+")
CAMEL_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
MACHINE_FOLDERS = ("work", "root", "tmp/bash_jobs")
REGISTRY_HOSTS = (
    ("pypi", "org"),
    ("files", "pythonhosted", "org"),
    ("deb", "debian", "org"),
    ("security", "debian", "org"),
    ("snapshot", "debian", "org"),
    ("registry", "npmjs", "org"),
    ("proxy", "golang", "org"),
    ("crates", "io"),
)
MACHINE_PATH = re.compile(rf"(?<![\w.}})~<-])/(?:{'|'.join(MACHINE_FOLDERS)})(?![\w-])")
REGISTRY_HOST = re.compile(
    "|".join(r"(?<![\w-])" + re.escape(".".join(host)) for host in REGISTRY_HOSTS)
)


@dataclass(frozen=True, order=True)
class Violation:
    path: str
    line: int
    column: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.rule}: {self.text[:80]!r}"


def comments(path: str, tokens: Iterable[Token], language: Language) -> Iterator[Violation]:
    for token in tokens:
        if token.kind is Kind.COMMENT and not is_shebang(token, language):
            yield Violation(path, token.line, token.column, "comment", token.text)


def is_shebang(token: Token, language: Language) -> bool:
    return (
        language.shebang
        and (token.line, token.column) == (1, 1)
        and token.text.startswith("#!")
        and "\n" not in token.text.rstrip("\n")
    )


def banned_words(path: str, tokens: Iterable[Token], words: Container[str]) -> Iterator[Violation]:
    for token in tokens:
        for offset, word in words_of(token.text):
            if word.lower() in words:
                line, column = place_after(token.text[:offset], token.line, token.column)
                yield Violation(path, line, column, "banned word", word)


def banned_name(path: str, words: Container[str]) -> Iterator[Violation]:
    """The file's own path follows the rule for words too."""
    for _, word in words_of(path):
        if word.lower() in words:
            yield Violation(path, 1, 1, "banned word", word)


def words_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, word) for each run of letters and each hump of its camel."""
    for run in ALPHABETIC.finditer(text):
        yield run.start(), run.group()
        humps = list(CAMEL_PIECE.finditer(run.group()))
        if len(humps) > 1:
            for hump in humps:
                yield run.start() + hump.start(), hump.group()


def ellipses(path: str, tokens: Iterable[Token], language: Language) -> Iterator[Violation]:
    for token in tokens:
        is_operator = language.ellipsis_operator and token.kind is Kind.CODE
        for match in (ELLIPSIS_CHARACTER if is_operator else ELLIPSIS).finditer(token.text):
            before = token.text[: match.start()]
            line, column = place_after(before, token.line, token.column)
            yield Violation(path, line, column, "ellipsis", match.group())


def machine_paths(path: str, text: str) -> Iterator[Violation]:
    for pattern in (MACHINE_PATH, REGISTRY_HOST):
        for match in pattern.finditer(text):
            line, column = place_after(text[: match.start()], 1, 1)
            yield Violation(path, line, column, "machine path", match.group())
