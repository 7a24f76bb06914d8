"""What the hub holds of a model at one commit, as far as the engine reads it."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from huggingface_hub import constants
from huggingface_hub.hf_api import RepoFile

from glm_engine.hub.client import FAULTS, MALFORMED, HubError, explain, in_time

WANTED = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|chat_template\.jinja"
    r"|hf_quant_config\.json|model\.safetensors\.index\.json|[A-Za-z0-9_][A-Za-z0-9_.-]*\.safetensors"
)
WEIGHTS = ".safetensors"
CONFIG = "config.json"
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256, GIT_SHA1 = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubFile:
    """A file of a commit: bytes, and the digest that names it: of the bytes, or of a git blob."""

    path: str
    size: int
    algorithm: str
    digest: str

    def hasher(self):
        """Return a hash that has seen all that stands before the file's first byte."""
        prefix = b"" if self.algorithm == "sha256" else f"blob {self.size}\0".encode()
        return hashlib.new(self.algorithm, prefix)


@dataclass(frozen=True)
class Listing:
    """The files of a model at one commit that the engine reads."""

    commit: str
    files: Sequence[HubFile]


def list_model(api, name, revision):
    """Ask the hub for the commit of a revision and for its files."""
    try:
        commit, entries = in_time(ask, api, name, revision)
    except (*FAULTS, *MALFORMED) as error:
        raise explain(name, revision, error) from error
    files = tuple(hub_file(name, one) for one in entries)
    paths = {file.path for file in files}
    if CONFIG not in paths or not any(path.endswith(WEIGHTS) for path in paths):
        raise HubError(f"{name}: not a checkpoint: expected {CONFIG} and files *{WEIGHTS} in it")
    return Listing(commit, files)


def ask(api, name, revision):
    """Return a revision's commit and the entries of its tree that the engine reads."""
    patience = constants.HF_HUB_DOWNLOAD_TIMEOUT
    commit = api.model_info(name, revision=revision, timeout=patience).sha
    if not COMMIT.fullmatch(commit or ""):
        raise HubError(f"{name}: expected a commit of 40 hexadecimal digits, got {commit!r}")
    tree = api.list_repo_tree(name, revision=commit)
    return commit, [one for one in tree if isinstance(one, RepoFile) and WANTED.fullmatch(one.path)]


def hub_file(name, entry):
    """Return a listed file; HubError where the list gives no digest or no size of it."""
    lfs = entry.lfs
    algorithm, digest, size = (
        ("sha256", lfs.sha256, lfs.size) if lfs else ("sha1", entry.blob_id, entry.size)
    )
    is_digest = isinstance(digest, str) and (SHA256 if lfs else GIT_SHA1).fullmatch(digest)
    if not is_digest or type(size) is not int or size < 0:
        raise HubError(f"{name}: {entry.path} is listed with digest {digest!r} and size {size!r}")
    return HubFile(entry.path, size, algorithm, digest)
