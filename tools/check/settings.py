"""Reads settings.toml, the only place where exceptions are declared."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

SETTINGS = Path(__file__).with_name("settings.toml")


@dataclass(frozen=True)
class Exemption:
    """One rule switched off, for one text, where `path` (a pattern) matches."""

    path: str
    rule: str
    text: str
    reason: str


@dataclass(frozen=True)
class Settings:
    banned_words: frozenset[str]
    prose_extensions: frozenset[str]
    data_extensions: frozenset[str]
    data_paths: Sequence[str]
    skipped_folders: frozenset[str]
    exemptions: Sequence[Exemption]

    def is_data(self, path: str, suffix: str) -> bool:
        return suffix in self.data_extensions or any(
            fnmatchcase(path, pattern) for pattern in self.data_paths
        )

    def exempts(self, path: str, rule: str, text: str) -> bool:
        return any(
            one.rule == rule and one.text == text.lower() and fnmatchcase(path, one.path)
            for one in self.exemptions
        )


def load_settings(path: Path = SETTINGS) -> Settings:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return Settings(
        banned_words=frozenset(table["banned_words"]),
        prose_extensions=frozenset(table["prose_extensions"]),
        data_extensions=frozenset(table["data_extensions"]),
        data_paths=tuple(table["data_paths"]),
        skipped_folders=frozenset(table["skipped_folders"]),
        exemptions=tuple(Exemption(**row) for row in table.get("exemptions", [])),
    )
