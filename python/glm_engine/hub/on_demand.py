"""Downloads that a command starts because it needs a model that is not in the cache."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from glm_engine.cli.no_download import downloads_are_forbidden
from glm_engine.core.console import bytes_progress, human_bytes, tell
from glm_engine.core.errors import BadInputError
from glm_engine.hub.names import CONFIG, MAIN, WEIGHTS, cache_folder, cached_part, hub_constants

DEFAULT_WORKERS = 8


def download_model(name: str) -> Path:
    """Download a model with a line and a progress bar on standard error; return its folder."""
    from glm_engine.core.loading import in_thread
    from glm_engine.hub.pulling import pull

    if is_forbidden():
        return unchecked_folder(name)
    endpoint = hub_constants().ENDPOINT
    tell(f"{name} is neither a folder nor in {cache_folder()}; downloading it from {endpoint}")
    with resumable(), bytes_progress(quiet=False) as show:
        pulled = in_thread(lambda: pull(name, MAIN, DEFAULT_WORKERS, show))
    tell(f"downloaded {human_bytes(pulled.fetched_bytes)} to {pulled.folder}")
    return pulled.folder


def download_part(name: str, files: Sequence[str]) -> Path:
    """Download some files of a model, none of them large; return the folder that holds them."""
    from glm_engine.core.loading import in_thread
    from glm_engine.hub.pulling import pull_part

    if is_forbidden():
        raise refusal(name)
    return in_thread(lambda: pull_part(name, MAIN, files))


def is_forbidden() -> bool:
    """Say whether the user or the environment forbids downloads."""
    return downloads_are_forbidden() or bool(hub_constants().HF_HUB_OFFLINE)


def refusal(name: str) -> BadInputError:
    """Return the error for a model that is missing while downloads are forbidden."""
    where = f"{name}: not a folder, and not in the cache {cache_folder()}"
    if downloads_are_forbidden():
        return BadInputError(f"{where}. --no-download is set; run `glm pull {name}` first.")
    return BadInputError(f"{where}. HF_HUB_OFFLINE is set; unset it and run `glm pull {name}`.")


def unchecked_folder(name: str) -> Path:
    """Return the folder of a model that another tool downloaded, as no pull may check it."""
    folder = cached_part(name, CONFIG)
    if folder is None or not any(folder.glob(WEIGHTS)):
        raise refusal(name)
    tell(f"{name}: using {folder}, which another tool downloaded and glm has not checked")
    return folder


@contextmanager
def resumable() -> Iterator[None]:
    """Let an interruption of a download say how to continue it."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("Run the same command to continue the download.") from error
