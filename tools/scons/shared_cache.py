"""A cache of build outputs shared between checkouts, which never stops a build."""

import os
from collections.abc import Mapping
from pathlib import Path

import SCons.CacheDir
import SCons.Errors
from environment import Node

VARIABLE = "GLM_BUILD_CACHE"
DISABLED = "off"


def cache_folder(variables: Mapping[str, str]) -> str | None:
    """GLM_BUILD_CACHE, else a folder below XDG_CACHE_HOME, else below ~/.cache; None for `off`."""
    chosen = variables.get(VARIABLE)
    if chosen == DISABLED:
        return None
    if chosen:
        return os.path.abspath(chosen)
    base = variables.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "glm-engine" / "build")


class SharedCache(SCons.CacheDir.CacheDir):
    """SCons's cache without lock and configuration files; a failing disk costs a rebuild only."""

    def __init__(self, path: str | None) -> None:
        super().__init__(None)
        self.path = path
        self.config = {"prefix_len": SCons.CacheDir.CACHE_PREFIX_LEN}
        self.accepts_files = True

    def retrieve(self, node: Node) -> bool:
        """True when the node's file came out of the cache."""
        try:
            return bool(super().retrieve(node))
        except OSError as error:
            print(f"cannot read build cache {self.path}: {error}; building {node}")
            Path(str(node)).unlink(missing_ok=True)
            return False

    def push(self, node: Node) -> None:
        """Copies a built file into the cache; the first failure ends the attempts of this run."""
        if not self.accepts_files:
            return
        try:
            super().push(node)
        except (OSError, SCons.Errors.SConsEnvironmentError) as error:
            self.accepts_files = False
            print(f"cannot write build cache {self.path}: {error}")
