"""The hub as huggingface_hub speaks to it: its client, and its faults as one line each."""

import threading
from concurrent.futures import Future
from contextlib import contextmanager

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

from glm_engine.errors import BadInputError, GlmError
from glm_engine.version import version

LIBRARY = {"library_name": "glm-engine", "library_version": version()}
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


class HubError(GlmError):
    """The hub, the way to it or the disk failed a pull."""


class Allowance:
    """What answers of a hub may take together, each for a little at least."""

    def __init__(self):
        self.bytes_left = MOST_BYTES

    def take(self, size):
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise HubError(
                f"{constants.ENDPOINT} says more than {MOST_BYTES >> 20} MiB "
                f"or {MOST_BYTES // LEAST_BYTES} answers of what a model holds"
            )

    def bound(self, response):
        """Count an answer, unless it is a file, which has a size of its own."""
        if encoding := response.headers.get("Content-Encoding"):
            raise HubError(f"{response.url}: expected no Content-Encoding, got {encoding!r}")
        is_file = OF_A_FILE in response.request.extensions
        allowance = Allowance() if is_file else self
        if not (is_file and response.is_success):
            allowance.take(LEAST_BYTES)
            response.stream = BoundedBody(response.stream, allowance)


class BoundedBody(httpx2.SyncByteStream):
    """The body of an answer, for which an allowance is used up."""

    def __init__(self, body, allowance):
        self.body, self.allowance = body, allowance

    def __iter__(self):
        for piece in self.body:
            self.allowance.take(len(piece))
            yield piece

    def close(self):
        self.body.close()


def open_hub():
    """Return the hub's interface: it prints nothing, and none of its requests waits for ever.

    It asks for no list of agents, which would be kept and, where it is none, fail all later pulls.
    """
    logging.set_verbosity_error()
    constants.HF_HUB_DISABLE_TELEMETRY = True
    hooks = {"request": [limit_request], "response": [Allowance().bound]}
    set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True))
    try:
        get_session()
    except OSError as error:
        raise HubError(f"certificates, SSL_CERT_FILE or SSL_CERT_DIR: {error}") from error
    return HfApi(**LIBRARY)


def limit_request(request):
    """Give a request the hub's own patience, and let no answer be larger than it seems.

    huggingface_hub sends listings without any patience.
    """
    patience = httpx2.Timeout(constants.HF_HUB_DOWNLOAD_TIMEOUT)
    request.extensions["timeout"] = patience.as_dict()
    request.headers["Accept-Encoding"] = "identity"


def in_time(function, *arguments):
    """Return what a function that asks the hub returns; HubError where it takes too long.

    The limit of each wait is no limit of all of them: an answer may come byte by byte.
    """
    outcome = Future()

    def run():
        try:
            outcome.set_result(function(*arguments))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return outcome.result(MOST_SECONDS)
    except TimeoutError as error:
        if not outcome.done():
            said = f"has not said in {MOST_SECONDS:g} s what the model holds"
            raise HubError(f"{constants.ENDPOINT} {said}") from error
        raise


@contextmanager
def stream_file(name, commit, path, start):
    """Give a response with a file's bytes from `start` on, or from 0 where its status says so."""
    headers = build_hf_headers(**LIBRARY)
    if start:
        headers["Range"] = f"bytes={start}-"
    url = hf_hub_url(name, path, revision=commit)
    marked = {OF_A_FILE: True}
    with get_session().stream("GET", url, headers=headers, extensions=marked) as response:
        hf_raise_for_status(response)
        yield response


def passes(error):
    """Say whether a fault may be gone when the same is asked again."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in BUSY
    return isinstance(error, BROKEN)


def explain(name, revision, error):
    """Return the error that a user sees for what huggingface_hub raised."""
    hub = constants.ENDPOINT
    if isinstance(error, UnicodeEncodeError):
        return BadInputError(f"{name}: HF_TOKEN, or the token that is stored: expected ASCII")
    if isinstance(error, HFValidationError):
        return BadInputError(f"{name}: not a model's name: {error}")
    if isinstance(error, GatedRepoError):
        return HubError(f"{name}: gated: ask for access at {hub}/{name}, then set HF_TOKEN")
    if isinstance(error, RevisionNotFoundError):
        return HubError(f"{name}: {hub} has no revision {revision!r} of it")
    if isinstance(error, HfHubHTTPError):
        return explain_status(name, error)
    if isinstance(error, httpx2.HTTPError):
        return HubError(f"{name}: {hub} cannot be reached: {error or type(error).__name__}")
    return HubError(f"{name}: {hub} does not answer as a hub: {type(error).__name__}: {error}")


def explain_status(name, error):
    """Return the error for a status: of the hub itself, or of a host that it sent us to."""
    status, url = error.response.status_code, error.response.url
    is_hub = str(url).startswith(constants.ENDPOINT)
    if is_hub and (isinstance(error, RepositoryNotFoundError) or status in REFUSED):
        return HubError(
            f"{name}: {constants.ENDPOINT} has no such model or does not show it (status {status}):"
            " a private one needs HF_TOKEN, a token that may read it"
        )
    return HubError(f"{name}: {url.scheme}://{url.netloc.decode()} answers with status {status}")
