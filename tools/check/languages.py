"""Which language a file is written in, and how that language is lexed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from tools.check import scanner
from tools.check.pygmentic import pygments_lexer
from tools.check.pythonic import lex_python
from tools.check.tokens import Token


@dataclass(frozen=True)
class Language:
    """How to read one language.

    `shebang`: a `#!` at the first byte is allowed. `ellipsis_operator`: three
    dots are an operator of the language, so only strings are searched for them.
    """

    name: str
    lex: Callable[[str], Iterable[Token]]
    extensions: Sequence[str]
    file_names: Sequence[str] = ()
    interpreters: Sequence[str] = ()
    shebang: bool = False
    ellipsis_operator: bool = False


LANGUAGES = (
    Language(
        "Python",
        lex_python,
        (".py", ".pyi"),
        ("SConstruct", "SConscript"),
        ("python", "python3"),
        shebang=True,
    ),
    Language(
        "C, C++ and CUDA",
        scanner.scanner(scanner.C_FAMILY),
        (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".cu", ".cuh", ".inl"),
        ellipsis_operator=True,
    ),
    Language(
        "Terra and Lua",
        scanner.scanner(scanner.TERRA),
        (".t", ".lua"),
        interpreters=("terra", "lua"),
        shebang=True,
        ellipsis_operator=True,
    ),
    Language(
        "Futhark",
        scanner.scanner(scanner.FUTHARK),
        (".fut",),
        ellipsis_operator=True,
    ),
    Language(
        "shell",
        pygments_lexer("bash"),
        (".sh", ".bash"),
        interpreters=("sh", "bash", "dash"),
        shebang=True,
    ),
    Language("Nix", pygments_lexer("nix"), (".nix",), ellipsis_operator=True),
    Language("TOML", pygments_lexer("toml"), (".toml",), (".replit",)),
    Language(
        "YAML",
        pygments_lexer("yaml"),
        (".yaml", ".yml", ".cff"),
        (".clang-format", ".clang-tidy", ".clangd"),
    ),
    Language("INI", scanner.scanner(scanner.INI), (".ini", ".cfg", ".service"), (".editorconfig",)),
    Language("JSON", pygments_lexer("json5"), (".json", ".jsonc", ".json5")),
    Language(
        "JavaScript",
        pygments_lexer("javascript"),
        (".js", ".mjs"),
        interpreters=("node",),
        shebang=True,
        ellipsis_operator=True,
    ),
    Language("CSS", pygments_lexer("css"), (".css",)),
    Language("HTML", pygments_lexer("html"), (".html", ".htm")),
    Language("XML", pygments_lexer("xml"), (".xml", ".svg")),
    Language("Jinja", pygments_lexer("html+jinja"), (".jinja", ".j2")),
    Language(
        "Dockerfile",
        scanner.scanner(scanner.HASH_LINES),
        (".dockerfile",),
        ("Dockerfile", "Containerfile"),
    ),
    Language("make", pygments_lexer("make"), (".mk",), ("Makefile",)),
    Language(
        "ignore list",
        scanner.scanner(scanner.HASH_LINES),
        (),
        (".gitignore", ".gitattributes", ".dockerignore", ".git-blame-ignore-revs"),
    ),
    Language(
        "requirements",
        scanner.scanner(scanner.HASH_AFTER_SPACE),
        (".in",),
        ("requirements.txt", "constraints.txt"),
    ),
)

BY_FILE_NAME = {name: one for one in LANGUAGES for name in one.file_names}
BY_EXTENSION = {extension: one for one in LANGUAGES for extension in one.extensions}
BY_INTERPRETER = {name: one for one in LANGUAGES for name in one.interpreters}


def language_of(name: str, text: str) -> Language | None:
    """Return the language of a file, by name, extension or shebang, or None."""
    path = PurePosixPath(name)
    return (
        BY_FILE_NAME.get(path.name)
        or BY_EXTENSION.get(path.suffix)
        or BY_INTERPRETER.get(interpreter_of(text) or "")
    )


def interpreter_of(text: str) -> str | None:
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        return None
    words = [word for word in first[2:].split() if not word.startswith("-")]
    names = [PurePosixPath(word).name for word in words]
    if names[:1] == ["env"]:
        names = names[1:]
    return names[0].rstrip("0123456789.") if names else None
