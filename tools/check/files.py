"""Lists the files of a checkout and applies the rules to each."""

import os
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tools.check import rules
from tools.check.languages import Language, language_of
from tools.check.rules import Violation
from tools.check.settings import Settings
from tools.check.tokens import LexingError

DATA = "data (machine paths only)"
PROSE = "Markdown (machine paths only)"
BINARY = "binary data (not read)"


@dataclass
class Outcome:
    """What was found, and which files were read as what."""

    violations: list[Violation] = field(default_factory=list)
    files_by_language: dict[str, list[str]] = field(default_factory=dict)


def tracked_files(root: Path, skipped_folders: Collection[str]) -> list[str]:
    """Paths relative to `root`: what git tracks, or all files where git is absent."""
    if (root / ".git").exists():
        listing = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z"],
            check=True,
            capture_output=True,
            text=True,
        )
        paths = [path for path in listing.stdout.split("\0") if path]
        return sorted(path for path in paths if (root / path).is_file())
    return sorted(walked_files(root, skipped_folders))


def walked_files(root: Path, skipped_folders: Collection[str]) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in skipped_folders]
        for name in names:
            yield (Path(folder) / name).relative_to(root).as_posix()


def check_files(root: Path, paths: Iterable[str], settings: Settings) -> Outcome:
    outcome = Outcome()
    for path in paths:
        kind, violations = check_file(path, (root / path).read_bytes(), settings)
        outcome.files_by_language.setdefault(kind, []).append(path)
        outcome.violations.extend(sorted(set(violations)))
    return outcome


def check_file(path: str, content: bytes, settings: Settings) -> tuple[str, list[Violation]]:
    """Return the kind of a file and its violations."""
    suffix = PurePosixPath(path).suffix
    is_data = settings.is_data(path, suffix)
    text = decoded(content)
    if text is None:
        if is_data:
            return BINARY, []
        return "unknown", [Violation(path, 1, 1, "not UTF-8", suffix)]
    found = list(rules.machine_paths(path, text))
    if is_data or suffix in settings.prose_extensions:
        return (DATA if is_data else PROSE), allowed(found, settings)
    language = language_of(path, text)
    if language is None:
        found.append(Violation(path, 1, 1, "unknown kind of file", suffix))
        return "unknown", allowed(found, settings)
    found.extend(source_violations(path, text, language, settings))
    return language.name, allowed(found, settings)


def decoded(content: bytes) -> str | None:
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def source_violations(
    path: str, text: str, language: Language, settings: Settings
) -> list[Violation]:
    try:
        tokens = list(language.lex(text.replace("\r\n", "\n")))
    except LexingError as error:
        return [Violation(path, error.line, 1, "cannot be read", str(error))]
    return [
        *rules.comments(path, tokens, language),
        *rules.banned_words(path, tokens, settings.banned_words),
        *rules.banned_name(path, settings.banned_words),
        *rules.ellipses(path, tokens, language),
    ]


def allowed(violations: Iterable[Violation], settings: Settings) -> list[Violation]:
    return [one for one in violations if not settings.exempts(one.path, one.rule, one.text)]
