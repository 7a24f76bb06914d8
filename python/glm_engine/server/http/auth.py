"""Who may ask: API keys, and the names by which a server on the loopback may be asked.

Keys are kept as SHA-256 digests and compared in constant time. Who owns a domain can let it stand
for 127.0.0.1, and a browser then takes answers of a server on the loopback for that page's own (DNS
rebinding). An address in `Host` cannot be had that way.
"""

import hashlib
import hmac
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from glm_engine.core.errors import BadInputError, variable
from glm_engine.server.http.api_errors import ApiError

if TYPE_CHECKING:
    from glm_engine.server.server_settings import Settings


VARIABLE = "GLM_API_KEYS"
OPTION = "--api-key"
BYTE_ORDER_MARK = "\ufeff"
HASHED = "sha256:"
NOTE = "#"
BEARER = "bearer "
LOGGED_DIGITS = 8
GUARDED = ("/v1/", "/tokenize", "/detokenize")
LOOPBACK = "localhost"
ANY = "*"
HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^:]*))(?::[0-9]*)?")


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


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Say whether a name or an address can be reached from this machine alone."""
    found = socket.getaddrinfo(host, None)
    return all(ip_address(address[0]).is_loopback for *_, address in found)


def name_of(host: str) -> str:
    """Return the name or address of a Host header, without its port; "" where it is no host."""
    found = HOST.fullmatch(host)
    return (found[1] or found[2] or "").removesuffix(".").lower() if found else ""


class AllowedHosts:
    """The names that are taken; all of them where the server is open to a network or has keys."""

    def __init__(self, settings: "Settings", has_keys: bool) -> None:
        named = {name.lower() for name in settings.allowed_hosts}
        is_private = is_loopback(settings.host) and not has_keys
        self.names = {*named, settings.host, LOOPBACK} if named or is_private else {ANY}

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise ApiError 403 for a Host that is no address and not among the names, 400 for two."""
        hosts = [value.decode("latin-1") for field, value in headers if field == b"host"]
        if len(hosts) > 1:
            message = f"expected one Host header, got {len(hosts)}"
            raise ApiError(400, message, code="invalid_http")
        if ANY in self.names:
            return
        for host in hosts:
            name = name_of(host)
            if name not in self.names and not is_address(name):
                message = f"the Host header {host!r} is not allowed; allow it with --allowed-host"
                raise ApiError(403, message, code="host_not_allowed")
