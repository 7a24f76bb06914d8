"""`glm pull`: a model's files into the hub's cache, and the record of which commit they are."""

import fcntl
import json
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glm_engine.console import human_bytes
from glm_engine.errors import BadInputError, GlmError
from glm_engine.files import read_object, write_whole
from glm_engine.hub.names import NAME, RECORD_FILE, find_pulled, hub_constants, storage_of

REVISION = re.compile(r"(?!.*\.\.)[A-Za-z0-9_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_-])?")
LOCK_FILE = "glm.lock"


@dataclass(frozen=True)
class Pulled:
    """What a pull brought: bytes in all, those fetched now, and whether all were checked now."""

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

    def __init__(self, total, show):
        self.done, self.total, self.show = 0, total, show
        self.lock = threading.Lock()

    def add(self, count):
        with self.lock:
            self.done += count
            if self.show:
                self.show(self.done, self.total, "pulling")


def check_names(name, revision):
    """Refuse what is no model's name or no revision before anybody is asked."""
    if not NAME.fullmatch(name):
        raise BadInputError(f"{name}: not a model's name; expected ORG/NAME")
    if not REVISION.fullmatch(revision):
        raise BadInputError(f"{revision!r}: not a revision; expected a branch, tag or commit")


def pull(name, revision, max_workers, show=None):
    """Bring the files of a model that the engine reads; `show` is as in `bytes_progress`."""
    check_names(name, revision)
    if hub_constants().HF_HUB_OFFLINE:
        return recorded(name, revision)
    from glm_engine.hub import client

    try:
        return pull_online(name, revision, max_workers, show)
    except client.FAULTS as error:
        raise client.explain(name, revision, error) from error
    except OSError as error:
        where = error.filename or storage_of(name)
        raise client.HubError(f"{name}: {where}: {error.strerror or error}") from error


def recorded(name, revision):
    """Return what an earlier pull of this revision brought, with no word to the hub."""
    try:
        folder = find_pulled(name)
    except BadInputError as error:
        raise GlmError(f"{name}: not all here, and HF_HUB_OFFLINE is set") from error
    record = read_object(storage_of(name) / RECORD_FILE)
    if revision not in (record["revision"], record["commit"]):
        raise GlmError(
            f"{name}: HF_HUB_OFFLINE is set, and here is {record['revision']}, not {revision}"
        )
    sizes = [file["size"] for file in record["files"]]
    return Pulled(name, revision, record["commit"], folder, len(sizes), sum(sizes), 0, False)


def pull_online(name, revision, max_workers, show):
    from glm_engine.hub import client
    from glm_engine.hub.listing import list_model
    from glm_engine.hub.transfer import Transfer

    listing = list_model(client.open_hub(), name, revision)
    storage = storage_of(name)
    blobs = storage / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    files = list({file.digest: file for file in listing.files}.values())
    counter = Counter(sum(file.size for file in files), show)
    transfer = Transfer(name, listing.commit, blobs, counter.add, threading.Event())
    with only_pull(name, storage):
        require_space(transfer, files)
        fetched = bring_all(transfer, files, max_workers)
        folder = publish(storage, revision, listing)
        write_record(storage, name, revision, listing)
    total = sum(file.size for file in listing.files)
    return Pulled(name, revision, listing.commit, folder, len(listing.files), total, fetched)


@contextmanager
def only_pull(name, storage):
    """Keep a second pull of the same model away until this one has ended, however it ends."""
    from glm_engine.hub.client import HubError

    with (storage / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HubError(f"{name}: another `glm pull` of it is running") from error
        yield


def require_space(transfer, files):
    """Refuse to begin what the disk cannot hold."""
    from glm_engine.hub.client import HubError

    lacking = sum(map(transfer.num_lacking, files))
    free = shutil.disk_usage(transfer.blobs).free
    if lacking > free:
        raise HubError(
            f"{transfer.name}: {human_bytes(lacking)} are to be fetched, "
            f"and {transfer.blobs} has {human_bytes(free)} free"
        )


def bring_all(transfer, files, max_workers):
    """Bring files side by side; the first that fails ends all. Return the bytes fetched."""
    with ThreadPoolExecutor(max_workers) as pool:
        running = [pool.submit(transfer.bring, file) for file in files]
        try:
            return sum(one.result() for one in as_completed(running))
        except BaseException:
            transfer.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def publish(storage, revision, listing):
    """Show whole files under their names, laid out as huggingface_hub lays out its cache."""
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


def write_record(storage, name, revision, listing):
    """Record which commit a name stands for from now on, and what of it was checked."""
    record = {
        "name": name,
        "revision": revision,
        "commit": listing.commit,
        "files": [
            {"path": file.path, "size": file.size, file.algorithm: file.digest}
            for file in listing.files
        ],
    }
    write_whole(storage / RECORD_FILE, (json.dumps(record, indent=1) + "\n").encode())
