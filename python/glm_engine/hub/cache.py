"""The models in the hub's cache: which are here, how large they are, and their removal."""

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glm_engine.core.errors import BadInputError, GlmError
from glm_engine.core.files import read_object
from glm_engine.hub.names import (
    CONFIG,
    RECORD_FILE,
    STORAGE_PREFIX,
    WEIGHTS,
    cache_folder,
    find_pulled,
    main_snapshot,
    name_of_storage,
    storage_of,
)
from glm_engine.hub.pulling import lock_storage
from glm_engine.hub.supported import is_supported

PARTIAL = "blobs/*.incomplete"
State = Literal["ready", "incomplete", "config only", "unchecked", "unsupported"]


@dataclass(frozen=True)
class CachedModel:
    """A model in the cache: its bytes, when the last file came (seconds), whether it is usable.

    `state` is ready, incomplete, config only, unchecked (another tool downloaded it) or
    unsupported; `folder` is None if no revision is complete.
    """

    name: str
    size_bytes: int
    modified: float
    state: State
    model_type: str | None
    folder: str | None


def list_models() -> list[CachedModel]:
    """Return the models in the cache, by name; a folder without a file of a model is none."""
    storages = sorted(cache_folder().glob(f"{STORAGE_PREFIX}*"))
    described = (describe(storage) for storage in storages if storage.is_dir())
    return [one for one in described if one is not None]


def describe(storage: Path) -> CachedModel | None:
    """Return what the cache holds of a model, None if it holds no file that has a name."""
    name = name_of_storage(storage.name)
    folder, is_whole = pulled_folder(name, storage)
    is_partial = any(storage.glob(PARTIAL))
    if folder is None and not is_partial:
        return None
    model_type = type_of(folder)
    size, modified = measure(storage)
    state = state_of(folder, is_whole, is_partial, model_type)
    return CachedModel(name, size, modified, state, model_type, str(folder) if folder else None)


def pulled_folder(name: str, storage: Path) -> tuple[Path | None, bool]:
    """Return the folder that a name stands for, and whether a pull completed it."""
    try:
        folder = find_pulled(name)
    except BadInputError:
        return main_snapshot(storage), False
    return folder or main_snapshot(storage), folder is not None


def type_of(folder: Path | None) -> str | None:
    """Return the model_type that a folder's config.json states, None if it states none."""
    found = None
    with suppress(BadInputError):
        found = read_object(folder / CONFIG).get("model_type") if folder else None
    return found if isinstance(found, str) else None


def state_of(
    folder: Path | None, is_whole: bool, is_partial: bool, model_type: str | None
) -> State:
    """Return the state of a model as `CachedModel` names it."""
    if folder and model_type and not is_supported(model_type):
        return "unsupported"
    if is_whole:
        return "ready"
    if is_partial or folder is None or (folder.parents[1] / RECORD_FILE).exists():
        return "incomplete"
    return "unchecked" if any(folder.glob(WEIGHTS)) else "config only"


def measure(storage: Path) -> tuple[int, float]:
    """Return the bytes of all files below a folder, and when the last of them changed."""
    size, modified = 0, 0.0
    for parent, _, names in os.walk(storage):
        for name in names:
            with suppress(FileNotFoundError):
                found = os.lstat(Path(parent, name))
                if stat.S_ISREG(found.st_mode):
                    size, modified = size + found.st_size, max(modified, found.st_mtime)
    return size, modified


def find_models(names: Sequence[str]) -> list[CachedModel]:
    """Return the models of these names; BadInputError names those that the cache has."""
    here = {one.name: one for one in list_models()}
    for name in names:
        if name not in here:
            known = f"The cache has: {', '.join(here)}." if here else "The cache has no model."
            raise BadInputError(f"{name}: not in {cache_folder()}. {known}")
    return [here[name] for name in dict.fromkeys(names)]


def remove_model(model: CachedModel) -> None:
    """Delete a model, all its revisions included, unless a process is downloading it."""
    storage = storage_of(model.name)
    if storage.is_symlink():
        raise GlmError(f"{model.name}: not removed: {storage} is a symbolic link")
    with lock_storage(storage) as is_locked:
        if not is_locked:
            raise GlmError(f"{model.name}: not removed: being downloaded by another process")
        shutil.rmtree(storage)
