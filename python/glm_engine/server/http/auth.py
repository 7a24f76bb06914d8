"""API keys: kept as SHA-256 digests, compared in constant time."""

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from glm_engine.core.errors import BadInputError, variable
from glm_engine.server.http.api_errors import ApiError

if TYPE_CHECKING:
    pass


VARIABLE = "GLM_API_KEYS"
OPTION = "--api-key"
BYTE_ORDER_MARK = "\ufeff"
HASHED = "sha256:"
NOTE = "#"
BEARER = "bearer "
LOGGED_DIGITS = 8
GUARDED = ("/v1/", "/tokenize", "/detokenize")


def digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8")).digest()


def digest_of_line(line: str, source: str) -> bytes:
    """Return the digest of a key, or the one that the line states as sha256:HEX, in either case."""
    kind, stated = line[: len(HASHED)], line[len(HASHED) :]
    if kind.lower() != HASHED:
        return digest_of(line)
    try:
        digest = bytes.fromhex(stated)
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise BadInputError(
            f"{source}: expected 64 hexadecimal digits after {HASHED} in an API key"
        )
    return digest


def read_lines(path: str | Path) -> list[str]:
    """Return the lines that hold a key; those that begin with # are notes of whoever wrote them."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(f"{path}: cannot read the API key file: {reason}") from error
    found = [line.strip() for line in without_marks(text).splitlines()]
    return [line for line in found if line and not line.startswith(NOTE)]


def without_marks(text: str) -> str:
    """Leave out byte-order marks: editors and concatenated files put them before any line."""
    return text.replace(BYTE_ORDER_MARK, "")


def stated_lines(
    path: str | Path | None, environment: Mapping[str, str], keys: Sequence[str], source: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield (source, lines) of the option, the file and the variable that state keys."""
    if keys:
        yield source, [key.strip() for key in keys if key.strip()]
    if path is not None:
        yield str(path), read_lines(path)
    if (keys := variable(VARIABLE, environment)) is not None:
        yield VARIABLE, without_marks(keys).split()


class KeyRing:
    """The digests of the accepted keys; without any, every request is accepted."""

    def __init__(
        self,
        path: str | Path | None = None,
        environment: Mapping[str, str] = os.environ,
        keys: Sequence[str] = (),
        source_of_keys: str = OPTION,
    ) -> None:
        """source_of_keys: where `keys` were stated. `sources` are all places that stated keys."""
        self.digests, self.sources = [], []
        for source, lines in stated_lines(path, environment, keys, source_of_keys):
            if not lines:
                raise BadInputError(f"{source}: expected at least one API key, found none")
            self.digests += [digest_of_line(line, source) for line in lines]
            self.sources.append(source)

    def check(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return how the log names the key; ApiError 401 where there is none that fits."""
        if not self.digests or not path.startswith(GUARDED):
            return None
        presented = [digest_of(key) for key in presented_keys(headers)]
        if not presented:
            raise key_error(
                "missing API key: send the header Authorization: Bearer KEY, or x-api-key: KEY"
            )
        found = [digest for digest in presented if self.knows(digest)]
        if not found:
            raise key_error("incorrect API key")
        return found[0].hex()[:LOGGED_DIGITS]

    def knows(self, digest: bytes) -> bool:
        matches = [hmac.compare_digest(digest, known) for known in self.digests]
        return any(matches)


def key_error(message: str) -> ApiError:
    headers = {"www-authenticate": "Bearer"}
    return ApiError(401, message, code="invalid_api_key", headers=headers)


def presented_keys(headers: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """Return the keys of Bearer and x-api-key headers; clients that send both mean either."""
    texts = [(name, value.decode("latin-1")) for name, value in headers]
    return [
        (text[len(BEARER) :] if name == b"authorization" else text).strip()
        for name, text in texts
        if name == b"x-api-key" or (name == b"authorization" and text.lower().startswith(BEARER))
    ]
