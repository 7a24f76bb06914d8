"""huggingface_hub's client with limits of time and size, and its errors as one line each."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import ERROR
from typing import Any, TypeVar, TypeVarTuple, cast

import httpx2
from huggingface_hub import HfApi, constants, get_session, hf_hub_url, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, logging

from glm_engine.core.errors import BadInputError, GlmError
from glm_engine.core.loading import started
from glm_engine.version import version

LIBRARY: dict[str, Any] = {"library_name": "glm-engine", "library_version": version()}
BROKEN = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)
BUSY = (408, 429, 500, 502, 503, 504)
REFUSED = (401, 403)
PARTIAL = 206
FAULTS = (httpx2.HTTPError, httpx2.InvalidURL)
MALFORMED = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
MOST_BYTES, LEAST_BYTES = 16 << 20, 16 << 10
MOST_SECONDS = 60.0
OF_A_FILE = "glm_file"
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class HubError(GlmError):
    """The hub, the network or the disk failed a download."""


class Allowance:
    """The total size that answers of a hub may have; each counts as LEAST_BYTES or more."""

    def __init__(self) -> None:
        self.bytes_left = MOST_BYTES

    def take(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise HubError(
                f"{constants.ENDPOINT}: the model's file list is too long: "
                f"expected at most {MOST_BYTES >> 20} MiB in {MOST_BYTES // LEAST_BYTES} responses"
            )

    def bound(self, response: httpx2.Response) -> None:
        """Count an answer, unless it is a file: the list states a file's size."""
        if encoding := response.headers.get("Content-Encoding"):
            raise HubError(f"{response.url}: expected no Content-Encoding, got {encoding!r}")
        is_file = OF_A_FILE in response.request.extensions
        allowance = Allowance() if is_file else self
        if not (is_file and response.is_success):
            allowance.take(LEAST_BYTES)
            body = cast(httpx2.SyncByteStream, response.stream)
            response.stream = BoundedBody(body, allowance)


class BoundedBody(httpx2.SyncByteStream):
    """The body of an answer, which uses up an allowance."""

    def __init__(self, body: httpx2.SyncByteStream, allowance: Allowance) -> None:
        self.body, self.allowance = body, allowance

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.body:
            self.allowance.take(len(piece))
            yield piece

    def close(self) -> None:
        self.body.close()


def open_hub() -> HfApi:
    """Return the hub's interface: it prints nothing, and each of its requests has a time limit.

    It does not ask for huggingface_hub's list of agents: a malformed one would stay in the cache
    and fail all later pulls.
    """
    logging.set_verbosity(ERROR)
    constants.HF_HUB_DISABLE_TELEMETRY = True
    hooks: dict[str, list[Callable[..., None]]] = {
        "request": [limit_request],
        "response": [Allowance().bound],
    }
    set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True))
    try:
        get_session()
    except OSError as error:
        raise HubError(
            f"cannot load TLS certificates (SSL_CERT_FILE, SSL_CERT_DIR): {error}"
        ) from error
    return HfApi(**LIBRARY)


def limit_request(request: httpx2.Request) -> None:
    """Give a request huggingface_hub's time limit, and ask for an answer without compression.

    huggingface_hub sets no limit when it lists files.
    """
    patience = httpx2.Timeout(constants.HF_HUB_DOWNLOAD_TIMEOUT)
    request.extensions["timeout"] = patience.as_dict()
    request.headers["Accept-Encoding"] = "identity"


def in_time(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Return what a function that asks the hub returns; HubError if it takes too long.

    The limit of each wait does not limit their sum: an answer may come byte by byte.
    """
    _, outcome = started(lambda: function(*arguments), "glm-hub")
    try:
        return outcome.result(MOST_SECONDS)
    except TimeoutError as error:
        if not outcome.done():
            late = f"did not list the model's files within {MOST_SECONDS:g} s"
            raise HubError(f"{constants.ENDPOINT} {late}") from error
        raise


@contextmanager
def stream_file(name: str, commit: str, path: str, start: int) -> Iterator[httpx2.Response]:
    """Give a response with a file's bytes from `start` on, or from 0 if its status says so."""
    headers = build_hf_headers(**LIBRARY)
    if start:
        headers["Range"] = f"bytes={start}-"
    url = hf_hub_url(name, path, revision=commit)
    marked = {OF_A_FILE: True}
    with get_session().stream("GET", url, headers=headers, extensions=marked) as response:
        hf_raise_for_status(response)
        yield response


def passes(error: Exception) -> bool:
    """Say whether the same request may succeed when it is sent again."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in BUSY
    return isinstance(error, BROKEN)


def explain(name: str, revision: str, error: Exception) -> GlmError:
    """Return the error that the user sees for an error of huggingface_hub."""
    hub = constants.ENDPOINT
    if isinstance(error, UnicodeEncodeError):
        return BadInputError(f"{name}: the token in HF_TOKEN or in the token file is not ASCII")
    if isinstance(error, HFValidationError):
        return BadInputError(f"{name}: not a model name: {error}")
    if isinstance(error, GatedRepoError):
        return HubError(f"{name} is gated: request access at {hub}/{name}, then set HF_TOKEN")
    if isinstance(error, RevisionNotFoundError):
        return HubError(f"{name}: {hub} has no revision {revision!r} of this model")
    if isinstance(error, HfHubHTTPError):
        return explain_status(name, error)
    if isinstance(error, httpx2.HTTPError):
        reason = str(error).rstrip(".") or type(error).__name__
        advice = "Check the network, or set HF_ENDPOINT to a mirror."
        if "://" not in hub:
            advice = "HF_ENDPOINT must begin with http:// or https://."
        return HubError(f"{name}: cannot reach {hub}: {reason}. {advice}")
    return HubError(f"{name}: invalid response from {hub}: {type(error).__name__}: {error}")


def explain_status(name: str, error: HfHubHTTPError) -> HubError:
    """Return the error for a status of the hub, or of a host to which the hub redirected."""
    status, url = error.response.status_code, error.response.url
    is_hub = str(url).startswith(constants.ENDPOINT)
    if is_hub and (isinstance(error, RepositoryNotFoundError) or status in REFUSED):
        return HubError(
            f"{name}: {constants.ENDPOINT} has no such model, or you do not have access to it "
            f"(status {status}). For a private model, set HF_TOKEN to a token with access."
        )
    return HubError(f"{name}: {url.scheme}://{url.netloc.decode()} returned status {status}")
