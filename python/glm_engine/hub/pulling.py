"""`glm pull`: downloads a model into the hub's cache and records the commit."""

import fcntl
import json
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from glm_engine.core.console import human_bytes
from glm_engine.core.errors import BadInputError, GlmError
from glm_engine.core.files import read_object, write_whole
from glm_engine.core.reports import ShowProgress
from glm_engine.hub.names import (
    CONFIG,
    NAME,
    RECORD_FILE,
    cache_folder,
    find_pulled,
    hub_constants,
    refuse_elsewhere,
    storage_of,
)
from glm_engine.hub.supported import require_supported

if TYPE_CHECKING:
    from glm_engine.hub.model_files import HubFile, Listing
    from glm_engine.hub.transfer import Transfer

LOCK_FILE = "glm.lock"
STAGE = "downloading"
REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_-])?")


@dataclass(frozen=True)
class Pulled:
    """The result of a pull: all bytes, the bytes that came now, whether all files were checked."""

    name: str
    revision: str
    commit: str
    folder: Path
    num_files: int
    total_bytes: int
    fetched_bytes: int
    is_checked: bool = True


class Counter:
    """Counts bytes of several threads and shows them."""

    def __init__(self, total: int, show: ShowProgress | None) -> None:
        self.done, self.total, self.show = 0, total, show
        self.lock = threading.Lock()

    def add(self, count: int) -> None:
        with self.lock:
            self.done += count
            if self.show:
                self.show(self.done, self.total, STAGE)


def check_names(name: str, revision: str) -> None:
    """Refuse a malformed name or revision before the hub is asked."""
    refuse_elsewhere(name)
    if not NAME.fullmatch(name):
        raise BadInputError(f"{name}: not a model name; expected ORG/NAME")
    if not REVISION.fullmatch(revision):
        raise BadInputError(f"{revision!r}: invalid revision; expected a branch, tag or commit")


def pull(name: str, revision: str, max_workers: int, show: ShowProgress | None = None) -> Pulled:
    """Download the files of a model that the engine reads; `show` is as in `bytes_progress`."""
    check_names(name, revision)
    if hub_constants().HF_HUB_OFFLINE:
        return recorded(name, revision)
    if show:
        show(0, 0, STAGE)
    with faults_explained(name, revision):
        return pull_online(name, revision, max_workers, show)


def pull_part(name: str, revision: str, paths: Collection[str]) -> Path:
    """Download some small files of a model; return the folder that shows them.

    The name goes on to stand for the commit that `pull` recorded.
    """
    check_names(name, revision)
    with faults_explained(name, revision):
        listing = list_files(name, revision)
        part = replace(listing, files=[file for file in listing.files if file.path in paths])
        transfer = begin(name, part, None)
        is_here = not any(map(transfer.num_lacking, part.files))
        with nullcontext() if is_here else only_pull(transfer):
            folder, _ = bring_listing(transfer, revision, part, len(part.files))
            return folder


@contextmanager
def faults_explained(name: str, revision: str) -> Iterator[None]:
    """Turn what the hub, the network and the disk raise into errors of one line."""
    from glm_engine.hub import client

    try:
        yield
    except client.FAULTS as error:
        raise client.explain(name, revision, error) from error
    except OSError as error:
        where = error.filename or storage_of(name)
        raise client.HubError(f"{name}: {where}: {error.strerror or error}") from error


def recorded(name: str, revision: str) -> Pulled:
    """Return what an earlier pull of this revision brought, without asking the hub."""
    try:
        folder = find_pulled(name)
    except BadInputError as error:
        raise GlmError(f"{error} HF_HUB_OFFLINE is set; unset it first.") from error
    if folder is None:
        raise GlmError(
            f"{name}: not in the cache {cache_folder()}, and HF_HUB_OFFLINE is set. "
            "Unset it to download the model."
        )
    record = read_object(storage_of(name) / RECORD_FILE)
    if revision not in (record["revision"], record["commit"]):
        raise GlmError(
            f"{name}: the cache has revision {record['revision']}, not {revision}, "
            "and HF_HUB_OFFLINE is set"
        )
    sizes = [file["size"] for file in record["files"]]
    return Pulled(name, revision, record["commit"], folder, len(sizes), sum(sizes), 0, False)


def pull_online(name: str, revision: str, max_workers: int, show: ShowProgress | None) -> Pulled:
    listing = list_files(name, revision)
    transfer = begin(name, listing, show)
    with only_pull(transfer):
        folder, fetched = bring_listing(transfer, revision, listing, max_workers)
        write_record(name, revision, listing)
    total = sum(file.size for file in listing.files)
    return Pulled(name, revision, listing.commit, folder, len(listing.files), total, fetched)


def list_files(name: str, revision: str) -> "Listing":
    """Return what the hub lists of a model."""
    from glm_engine.hub import client
    from glm_engine.hub.model_files import list_model

    return list_model(client.open_hub(), name, revision)


def begin(name: str, listing: "Listing", show: ShowProgress | None) -> "Transfer":
    """Return the transfer of a listing's files into the cache."""
    from glm_engine.hub.transfer import Transfer

    blobs = storage_of(name) / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    sizes = {file.digest: file.size for file in listing.files}
    counter = Counter(sum(sizes.values()), show)
    return Transfer(name, listing.commit, blobs, counter.add, threading.Event())


@contextmanager
def only_pull(transfer: "Transfer") -> Iterator[None]:
    """Refuse a second pull of the same model until this pull has ended."""
    from glm_engine.hub.client import HubError

    with lock_storage(transfer.blobs.parent) as is_locked:
        if not is_locked:
            raise HubError(f"{transfer.name}: already being downloaded by another process")
        yield


@contextmanager
def lock_storage(storage: Path) -> Iterator[bool]:
    """Lock a model's folder in the cache; give False if another process has locked it."""
    with (storage / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def bring_listing(
    transfer: "Transfer", revision: str, listing: "Listing", max_workers: int
) -> tuple[Path, int]:
    """Download files, config.json first; return their folder and the number of bytes that came.

    An unsupported model or a full disk is refused before the other files.
    """
    files = {file.digest: file for file in listing.files}
    config = files.pop(next(file.digest for file in listing.files if file.path == CONFIG))
    require_space(transfer, [config])
    fetched = transfer.bring(config)
    require_supported(transfer.name, transfer.blobs / config.digest)
    require_space(transfer, files.values())
    fetched += bring_all(transfer, files.values(), max_workers)
    return publish(revision, listing, transfer.blobs.parent), fetched


def require_space(transfer: "Transfer", files: "Iterable[HubFile]") -> None:
    """Refuse to begin a download that the disk cannot hold."""
    from glm_engine.hub.client import HubError

    lacking = sum(map(transfer.num_lacking, files))
    free = shutil.disk_usage(transfer.blobs).free
    if lacking > free:
        raise HubError(
            f"{transfer.name}: not enough disk space in {cache_folder()}: the download needs "
            f"{human_bytes(lacking)}, but only {human_bytes(free)} is free. Free some space, "
            "or set HF_HOME to a folder on a larger disk."
        )


def bring_all(transfer: "Transfer", files: "Iterable[HubFile]", max_workers: int) -> int:
    """Download files in parallel; the first that fails stops all. Return the bytes that came."""
    with ThreadPoolExecutor(max_workers) as pool:
        running = [pool.submit(transfer.bring, file) for file in files]
        try:
            return sum(one.result() for one in as_completed(running))
        except BaseException:
            transfer.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def publish(revision: str, listing: "Listing", storage: Path) -> Path:
    """Give whole files their names, laid out as huggingface_hub lays out its cache."""
    folder = storage / "snapshots" / listing.commit
    folder.mkdir(parents=True, exist_ok=True)
    for file in listing.files:
        beside = folder / f".{file.path}.{os.getpid()}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(Path("..", "..", "blobs", file.digest))
        beside.replace(folder / file.path)
    if revision != listing.commit:
        reference = storage / "refs" / revision
        reference.parent.mkdir(parents=True, exist_ok=True)
        write_whole(reference, listing.commit.encode())
    return folder


def write_record(name: str, revision: str, listing: "Listing") -> None:
    """Record the commit that a name stands for from now on, and the digests of its files."""
    record = {
        "name": name,
        "revision": revision,
        "commit": listing.commit,
        "files": [
            {"path": file.path, "size": file.size, file.algorithm: file.digest}
            for file in listing.files
        ],
    }
    write_whole(storage_of(name) / RECORD_FILE, (json.dumps(record, indent=1) + "\n").encode())
