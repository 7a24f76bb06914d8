"""Models by name: ORG/NAME is a model of the hub, kept in a folder of the hub's cache."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from glm_engine.core.errors import BadInputError, variable
from glm_engine.core.files import read_object
from glm_engine.core.layout import CAPITALS, CONFIGS, OWN_MODEL, StrPath

RECORD_FILE = "glm.json"
STORAGE_PREFIX = "models--"
LETTERS = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
NAME = re.compile(rf"(?!.*(?:--|\.\.))(?!.*\.git\Z)(?=.{{1,96}}\Z){LETTERS}/{LETTERS}")
SITE = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/")
PAGE = re.compile(r"(?P<name>[^/?#]+/[^/?#]+)(?:/tree/(?P<revision>[^?#]+?))?/?(?:[?#].*)?")
ELSEWHERE = re.compile(r"(?P<hub>https?://[^/?#]+)/(?P<name>[^/?#]+/[^/?#]+)/?")
MAIN = "main"
FIRST_BYTES = 4096
OWNER = "zai-org/"
CONFIG = "config.json"
WEIGHTS = "*.safetensors"
CONFIG_FILES = (CONFIG,)
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
    CONFIG,
)
VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HF_HUB_OFFLINE")


def find_checkpoint(wanted: str) -> str:
    """Return the folder of a checkpoint; download a model of the hub that is not in the cache.

    A path that exists wins; `capitals` is the model that comes with the engine. Text that is
    neither a path nor a model's name comes back unchanged: the function that opens it refuses it.
    """
    name = model_name(wanted)
    if name is None:
        return own_or_path(wanted)
    from glm_engine.hub.on_demand import download_model

    return str(find_pulled(name) or download_model(name))


def find_config(wanted: str) -> str:
    """Return the path of a model's config.json or of a folder that holds it.

    `wanted` is a path, the name of a config that ships, or a model of the hub, of which only
    config.json is downloaded.
    """
    if os.path.exists(wanted):
        refuse_other_file(wanted)
        return wanted
    found = shipped_config(split_address(wanted)[0]) or find_part(wanted, CONFIG_FILES)
    if "/" not in found:
        known = ", ".join((OWN_MODEL, *sorted(path.stem for path in CONFIGS.glob("*.json"))))
        raise BadInputError(
            f"{wanted}: not a folder or a known name; expected a checkpoint folder, ORG/NAME of a "
            f"model on the Hugging Face hub, or one of {known}"
        )
    return found


def refuse_other_file(path: str) -> None:
    """Raise BadInputError for a file that is clearly not a config.json."""
    if path.endswith(".json") or not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        begins = file.read(FIRST_BYTES).lstrip()
    if not begins.startswith(b"{"):
        raise BadInputError(
            f"{path}: expected a checkpoint folder, a config.json or a model name, got another file"
        )


def tokenizer_of(stated: str | None, checkpoint: str) -> str:
    """Return the folder of the stated tokenizer, or else the checkpoint's; download no weights."""
    return find_part(stated, TOKENIZER_FILES) if stated else checkpoint


def own_or_path(wanted: str) -> str:
    return str(CAPITALS) if wanted == OWN_MODEL and not os.path.exists(wanted) else wanted


def find_part(wanted: str, files: Sequence[str]) -> str:
    """Return the folder that holds some of a model's files; the first of them must be there."""
    name = model_name(wanted)
    if name is None:
        return own_or_path(wanted)
    from glm_engine.hub.on_demand import download_part

    return str(find_pulled(name) or cached_part(name, files[0]) or download_part(name, files))


def shipped_config(wanted: str) -> str | None:
    """Return the path of the config.json that ships for a model, None if none does."""
    stem = wanted.removeprefix(OWNER).lower()
    path = os.path.join(CONFIGS, f"{stem}.json")
    return path if "/" not in stem and os.path.isfile(path) else None


def model_name(wanted: str) -> str | None:
    """Return ORG/NAME for a model's name or the address of its page; None for a path."""
    if os.path.exists(wanted):
        return None
    name, revision = split_address(wanted)
    if revision:
        raise BadInputError(
            f"{wanted}: expected ORG/NAME without a revision. "
            f"Run `glm pull {name} --revision {revision}`, then use {name}."
        )
    refuse_elsewhere(name)
    return name if NAME.fullmatch(name) else None


def refuse_elsewhere(text: str) -> None:
    """Raise BadInputError for the address of a model's page on another hub."""
    if found := ELSEWHERE.fullmatch(text):
        raise BadInputError(
            f"{text}: expected ORG/NAME, got a URL on another host. To use that hub, set "
            f"HF_ENDPOINT={found['hub']} and give {found['name']} as the model."
        )


def split_address(text: str) -> tuple[str, str | None]:
    """Return the name and the revision that the address of a model's page states.

    Any other text comes back as it is, with no revision.
    """
    rest = SITE.sub("", text, count=1) if SITE.match(text) else text
    if "://" in rest:
        rest = rest.removeprefix(f"{hub_constants().ENDPOINT}/")
    found = PAGE.fullmatch(rest) if rest != text else None
    return (found["name"], found["revision"]) if found else (text, None)


def find_pulled(name: str) -> Path | None:
    """Return the folder that the last pull of a model recorded, None if it was never pulled.

    Raise BadInputError if files are missing.
    """
    path = storage_of(name) / RECORD_FILE
    if not path.exists():
        return None
    command = f"Run `glm pull {name}`."
    folder, sizes = read_record(path, command)
    absent = [file for file, size in sizes.items() if size_of(folder / file) != size]
    if absent:
        raise BadInputError(f"{name}: {absent[0]} in {folder} is missing or incomplete. {command}")
    return folder


def read_record(path: Path, command: str) -> tuple[Path, dict[str, int]]:
    """Return the folder that a record names and the size of each of its files."""
    found = read_object(path)
    try:
        sizes = {one["path"]: one["size"] for one in found["files"]}
        texts = (found["revision"], found["commit"], *sizes)
    except (KeyError, TypeError) as error:
        raise BadInputError(f"{path}: not a valid pull record. {command}") from error
    if not all(isinstance(one, str) for one in texts):
        raise BadInputError(f"{path}: not a valid pull record. {command}")
    return path.parent / "snapshots" / found["commit"], sizes


def cached_part(name: str, file: str) -> Path | None:
    """Return the folder of the branch main in the cache if it holds a file, else None."""
    folder = main_snapshot(storage_of(name))
    return folder if folder and (folder / file).is_file() else None


def main_snapshot(storage: Path) -> Path | None:
    """Return the snapshot to which a model's branch main refers, None if there is none."""
    try:
        commit = (storage / "refs" / MAIN).read_text().strip()
    except (OSError, ValueError):
        return None
    folder = storage / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def size_of(path: Path) -> int | None:
    """Return a file's size, None if there is no file."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def cache_folder() -> Path:
    """Return the folder in which huggingface_hub keeps models."""
    return Path(hub_constants().HF_HUB_CACHE)


def storage_of(name: str) -> Path:
    """Return the folder of the hub's cache that holds all revisions of a model."""
    return cache_folder() / f"{STORAGE_PREFIX}{name.replace('/', '--')}"


def hub_constants() -> ModuleType:
    """Return what huggingface_hub read from the environment; BadInputError if it cannot."""
    for name in VARIABLES:
        variable(name)
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise BadInputError(f"invalid HF_HUB_* variable: {error}") from error
    return constants


def name_of_folder(folder: StrPath) -> str:
    """Return ORG/NAME for a snapshot in the hub's cache, else the folder's own name."""
    path = Path(folder).resolve()
    storage = path.parents[1].name if len(path.parts) > 2 else ""
    if path.parent.name == "snapshots" and storage.startswith(STORAGE_PREFIX):
        return name_of_storage(storage)
    return path.name


def name_of_storage(storage: str) -> str:
    """Return the model's name for the name of its folder in the hub's cache."""
    return storage.removeprefix(STORAGE_PREFIX).replace("--", "/", 1)
