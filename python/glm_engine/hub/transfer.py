"""Downloads one file, resumes it, and gives it its final name once it is whole and right."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from glm_engine.hub import client
from glm_engine.hub.client import HubError
from glm_engine.hub.model_files import HubFile

PIECE_BYTES = 1 << 20
MOST_FAILURES = 5
SHORT_DELAY, LONG_DELAY = 0.1, 16


class StoppedError(Exception):
    """Another file failed: this transfer stops."""


@dataclass(frozen=True)
class Transfer:
    """Downloads files of a model's commit into the folder of the cache's blobs.

    `show` takes the number of bytes that came, `stopped` ends all transfers.
    """

    name: str
    commit: str
    blobs: Path
    show: Callable[[int], None]
    stopped: threading.Event

    def partial(self, file: HubFile) -> Path:
        """Return the path of a file while it is incomplete."""
        return self.blobs / f"{file.digest}.incomplete"

    def num_lacking(self, file: HubFile) -> int:
        """Return how many bytes of a file are missing."""
        for path in (self.blobs / file.digest, self.partial(file)):
            if path.exists():
                return max(file.size - path.stat().st_size, 0)
        return file.size

    def bring(self, file: HubFile) -> int:
        """Give a file its final name; return how many bytes were downloaded for it."""
        whole, part = self.blobs / file.digest, self.partial(file)
        if whole.exists() and self.is_right(whole, file):
            self.show(file.size)
            return 0
        fetched = self.fetch(file, part)
        if not self.is_right(part, file):
            part.unlink()
            listed = f"{file.algorithm} {file.digest}, {file.size} bytes"
            raise HubError(
                f"{self.name}: {file.path} does not match the hub's listing ({listed}), so glm "
                "deleted it. Run the same command to download it again."
            )
        part.replace(whole)
        return fetched

    def is_right(self, path: Path, file: HubFile) -> bool:
        """Say whether a file has the listed size and digest; if so, write it to the disk."""
        found = file.hasher()
        with path.open("rb", buffering=0) as content:
            if os.fstat(content.fileno()).st_size != file.size:
                return False
            while piece := content.read(PIECE_BYTES):
                self.go_on()
                found.update(piece)
            os.fsync(content.fileno())
        return found.hexdigest() == file.digest

    def fetch(self, file: HubFile, part: Path) -> int:
        """Append the missing bytes to `part`; retry broken connections as long as bytes come."""
        failures = fetched = 0
        with part.open("ab", buffering=0) as out:
            self.show(out.tell())
            while (start := out.tell()) < file.size:
                error = self.try_to_receive(file, out)
                fetched += max(out.tell() - start, 0)
                failures = 0 if out.tell() > start else failures + 1
                if error and failures > MOST_FAILURES:
                    raise error
                if error:
                    self.stopped.wait(min(SHORT_DELAY * 3**failures, LONG_DELAY))
        return fetched

    def try_to_receive(self, file: HubFile, out: FileIO) -> Exception | None:
        """Write the bytes of one response; return an error after which a retry may succeed."""
        try:
            self.receive(file, out)
        except client.FAULTS as error:
            if not client.passes(error):
                raise
            return error
        cut = f"the download of {file.path} ended after {out.tell()} of {file.size} bytes"
        return HubError(f"{self.name}: {cut}") if out.tell() < file.size else None

    def receive(self, file: HubFile, out: FileIO) -> None:
        start = out.tell()
        with client.stream_file(self.name, self.commit, file.path, start) as response:
            if start and response.status_code != client.PARTIAL:
                self.show(-start)
                out.truncate(0)
                out.seek(0)
            for piece in response.iter_bytes():
                self.go_on()
                write_all(out, piece)
                self.show(len(piece))
                if out.tell() > file.size:
                    return

    def go_on(self) -> None:
        if self.stopped.is_set():
            raise StoppedError


def write_all(out: FileIO, content: bytes) -> None:
    """Write all bytes to an unbuffered file, which may take them in parts."""
    left = memoryview(content)
    while left:
        left = left[out.write(left) :]
