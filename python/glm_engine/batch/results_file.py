"""The results of a batch: each is one line, written whole or dropped at the next start."""

import fcntl
import os
import secrets
import stat
from collections.abc import Collection
from pathlib import Path

import orjson

from glm_engine.batch.requests_file import object_of
from glm_engine.core.errors import BadInputError, GlmError

BEGINNING = b'{"id":"batch_req_'


class ResultsFile:
    """A file of result lines that one process at a time appends to.

    done: the `custom_id` of each result that stands there.
    """

    def __init__(self, path: Path, known: Collection[str]) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
                raise BadInputError(f"{path}: expected the path of a regular file")
            self.lock()
            self.done = self.read(known)
        except BaseException:
            self.close()
            raise

    def lock(self) -> None:
        """Keep other processes out; the system lets them in when this one ends."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInputError(f"{self.path}: another glm batch is writing this file") from error

    def read(self, known: Collection[str]) -> set[str]:
        """Return the ids of whole lines, and drop a last line that was torn."""
        done: set[str] = set()
        whole = 0
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    self.drop(line, number, whole)
                    break
                done.add(self.custom_id(line, number, known))
                whole += len(line)
        return done

    def drop(self, line: bytes, number: int, whole: int) -> None:
        """Cut a torn line off; one that this command did not write is left alone."""
        if line[: len(BEGINNING)] != BEGINNING[: len(line)]:
            raise self.foreign(number)
        os.ftruncate(self.descriptor, whole)

    def custom_id(self, line: bytes, number: int, known: Collection[str]) -> str:
        """Return the id of a result's line; BadInputError where it is none of this batch."""
        if not line.startswith(BEGINNING):
            raise self.foreign(number)
        found = object_of(f"{self.path}:{number}", line).get("custom_id")
        if not isinstance(found, str) or found not in known:
            raise BadInputError(
                f"{self.path}:{number}: custom_id {found!r} is not among the requests; results of "
                "other requests need a file of their own"
            )
        return found

    def foreign(self, number: int) -> BadInputError:
        return BadInputError(
            f"{self.path}:{number}: expected a result of glm batch; give the path of a new file"
        )

    def write(self, custom_id: str, status: int, request_id: str, body: bytes) -> None:
        """Append a result; GlmError where the disk takes no more."""
        head = b'%s%s","custom_id":%s,"response":{"status_code":%d,"request_id":%s,"body":' % (
            BEGINNING,
            secrets.token_hex(16).encode(),
            orjson.dumps(custom_id),
            status,
            orjson.dumps(request_id),
        )
        rest = memoryview(b'%s%s},"error":null}\n' % (head, body))
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except OSError as error:
            raise GlmError(
                f"{self.path}: cannot write a result: {error.strerror}. The results before it are "
                "kept: make room and run the command again"
            ) from error
        self.done.add(custom_id)

    def close(self) -> None:
        os.close(self.descriptor)
