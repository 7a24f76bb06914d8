"""Models by name: ORG/NAME stands for what `glm pull` brought last, a folder of the hub's cache."""

import os
import re
from pathlib import Path

from glm_engine.errors import BadInputError
from glm_engine.files import read_object
from glm_engine.values import variable

RECORD_FILE = "glm.json"
STORAGE_PREFIX = "models--"
LETTERS = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
NAME = re.compile(rf"(?!.*(?:--|\.\.))(?!.*\.git\Z)(?=.{{1,96}}\Z){LETTERS}/{LETTERS}")
VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE")


def find_checkpoint(wanted):
    """Return the path that a checkpoint's path or a model's name stands for.

    A path that exists wins. A name whose files are not all here is BadInputError; what is neither
    comes back as it is, to be refused where it is opened.
    """
    if os.path.exists(wanted) or not NAME.fullmatch(wanted):
        return wanted
    return str(find_pulled(wanted))


def find_pulled(name):
    """Return the folder that the last pull of a name recorded; BadInputError where files lack."""
    path = storage_of(name) / RECORD_FILE
    command = f"`glm pull {name}`"
    if not path.exists():
        raise BadInputError(f"{name}: neither a folder nor a model that was pulled: run {command}")
    folder, sizes = read_record(path, command)
    absent = [file for file, size in sizes.items() if size_of(folder / file) != size]
    if absent:
        raise BadInputError(f"{name}: {absent[0]} is not whole in {folder}: run {command}")
    return folder


def read_record(path, command):
    """Return the folder that a record names and the size of each of its files."""
    found = read_object(path)
    try:
        sizes = {one["path"]: one["size"] for one in found["files"]}
        texts = (found["revision"], found["commit"], *sizes)
    except (KeyError, TypeError) as error:
        raise BadInputError(f"{path}: not a record of a pull: run {command}") from error
    if not all(isinstance(one, str) for one in texts):
        raise BadInputError(f"{path}: not a record of a pull: run {command}")
    return path.parent / "snapshots" / found["commit"], sizes


def size_of(path):
    """Return a file's size, None where there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def storage_of(name):
    """Return the folder of the hub's cache that holds all revisions of a model."""
    return Path(hub_constants().HF_HUB_CACHE) / f"{STORAGE_PREFIX}{name.replace('/', '--')}"


def hub_constants():
    """Return what huggingface_hub read from the environment; BadInputError where it cannot."""
    for name in VARIABLES:
        variable(name)
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise BadInputError(f"a variable HF_HUB_*: {error}") from error
    return constants


def name_of_folder(folder):
    """Return ORG/NAME for a snapshot in the hub's cache, else the folder's own name."""
    path = Path(folder).resolve()
    storage = path.parents[1].name if len(path.parts) > 2 else ""
    if path.parent.name == "snapshots" and storage.startswith(STORAGE_PREFIX):
        return storage.removeprefix(STORAGE_PREFIX).replace("--", "/", 1)
    return path.name
