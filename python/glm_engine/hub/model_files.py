"""The files of a model at one commit that the engine reads, as the hub lists them."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from huggingface_hub import HfApi, constants
from huggingface_hub.hf_api import RepoFile

from glm_engine.hub.client import FAULTS, MALFORMED, HubError, explain, in_time
from glm_engine.hub.names import CONFIG, WEIGHTS

WANTED = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|chat_template\.jinja"
    r"|hf_quant_config\.json|model\.safetensors\.index\.json|[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors"
)
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256, GIT_SHA1 = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubFile:
    """A file of a commit: its size in bytes, and the digest of its bytes or of its git blob."""

    path: str
    size: int
    algorithm: str
    digest: str

    def hasher(self) -> "hashlib._Hash":
        """Return a hash that has read what the digest covers before the file's first byte."""
        prefix = b"" if self.algorithm == "sha256" else f"blob {self.size}\0".encode()
        return hashlib.new(self.algorithm, prefix)


@dataclass(frozen=True)
class Listing:
    """The files of a model at one commit."""

    commit: str
    files: Sequence[HubFile]


def list_model(api: HfApi, name: str, revision: str) -> Listing:
    """Return the commit of a revision and its files, as the hub lists them."""
    try:
        commit, entries = in_time(ask, api, name, revision)
    except (*FAULTS, *MALFORMED) as error:
        raise explain(name, revision, error) from error
    files = tuple(hub_file(name, one) for one in entries)
    paths = {file.path for file in files}
    if CONFIG not in paths or not any(fnmatch(path, WEIGHTS) for path in paths):
        raise HubError(f"{name}: not a checkpoint: expected {CONFIG} and {WEIGHTS} files")
    return Listing(commit, files)


def ask(api: HfApi, name: str, revision: str) -> tuple[str, list[RepoFile]]:
    """Return a revision's commit and the entries of its tree that the engine reads."""
    patience = constants.HF_HUB_DOWNLOAD_TIMEOUT
    commit = api.model_info(name, revision=revision, timeout=patience).sha
    if commit is None or not COMMIT.fullmatch(commit):
        raise HubError(f"{name}: expected a commit with 40 hexadecimal digits, got {commit!r}")
    tree = api.list_repo_tree(name, revision=commit)
    return commit, [one for one in tree if isinstance(one, RepoFile) and WANTED.fullmatch(one.path)]


def hub_file(name: str, entry: RepoFile) -> HubFile:
    """Return a listed file; HubError if the list has no valid digest or size for it."""
    lfs = entry.lfs
    algorithm, digest, size = (
        ("sha256", lfs.sha256, lfs.size) if lfs else ("sha1", entry.blob_id, entry.size)
    )
    form = SHA256 if lfs else GIT_SHA1
    is_digest = isinstance(digest, str) and form.fullmatch(digest)
    if not is_digest or type(size) is not int or size < 0:
        raise HubError(
            f"{name}: the hub lists {entry.path} with an invalid digest or size: "
            f"{digest!r}, {size!r}"
        )
    return HubFile(entry.path, size, algorithm, digest)
