"""The hub as huggingface_hub speaks to it: its client, and its faults as one line each."""

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
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)


class HubError(GlmError):
    """The hub, the way to it or the disk failed a pull."""


def open_hub():
    """Return the hub's interface: it prints nothing, and none of its requests waits for ever."""
    logging.set_verbosity_error()
    hooks = {"request": [limit_silence]}
    set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True))
    try:
        get_session()
    except OSError as error:
        raise HubError(f"certificates, SSL_CERT_FILE or SSL_CERT_DIR: {error}") from error
    return HfApi(**LIBRARY)


def limit_silence(request):
    """Give a request the hub's own patience: huggingface_hub sends listings without any."""
    patience = httpx2.Timeout(constants.HF_HUB_DOWNLOAD_TIMEOUT)
    request.extensions["timeout"] = patience.as_dict()


@contextmanager
def stream_file(name, commit, path, start):
    """Give a response with a file's bytes from `start` on, or from 0 where its status says so."""
    headers = {**build_hf_headers(**LIBRARY), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    url = hf_hub_url(name, path, revision=commit)
    with get_session().stream("GET", url, headers=headers) as response:
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
