"""`glm pull`: downloads a model from the hub, so that every command finds it by its name."""

from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import Whole
from glm_engine.core.console import bytes_progress, human_bytes, print_fields, print_json
from glm_engine.core.errors import BadInputError
from glm_engine.hub.names import MAIN, split_address
from glm_engine.hub.on_demand import DEFAULT_WORKERS, resumable

if TYPE_CHECKING:
    from glm_engine.hub.pulling import Pulled

MOST_WORKERS = 64


@options.command("pull")
@click.argument("name", metavar="ORG/NAME")
@click.option("--revision", default=MAIN, help="Branch, tag or commit to download.")
@click.option(
    "--max-workers",
    type=Whole(1, MOST_WORKERS),
    default=DEFAULT_WORKERS,
    help="Number of files to download in parallel.",
)
@options.JSON
def command(name: str, revision: str, max_workers: int, as_json: bool) -> None:
    """Download the model ORG/NAME from the Hugging Face hub, or resume an interrupted download.

    You can also give the URL of the model's page. glm verifies each file against its hash on the
    hub. HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE work as they do for
    the `hf` command.
    """
    from glm_engine.core.loading import in_thread
    from glm_engine.hub.pulling import pull

    name, revision = name_and_revision(name, revision)
    with resumable(), bytes_progress(quiet=as_json) as show:
        pulled = in_thread(lambda: pull(name, revision, max_workers, show))
    print_json(report_of(pulled)) if as_json else print_pulled(pulled)


def name_and_revision(stated: str, revision: str) -> tuple[str, str]:
    """Return the name and the revision that the arguments state."""
    name, of_address = split_address(stated)
    if of_address and options.is_stated("revision") and revision != of_address:
        raise BadInputError(f"{stated} contains a revision, but --revision is {revision!r}")
    return name, of_address or revision


def report_of(pulled: "Pulled") -> dict[str, Any]:
    return {
        "model": pulled.name,
        "revision": pulled.revision,
        "commit": pulled.commit,
        "folder": str(pulled.folder),
        "num_files": pulled.num_files,
        "total_bytes": pulled.total_bytes,
        "fetched_bytes": pulled.fetched_bytes,
        "checked": pulled.is_checked,
    }


def print_pulled(pulled: "Pulled") -> None:
    checked = "all checked" if pulled.is_checked else "not checked: HF_HUB_OFFLINE is set"
    print_fields(
        [
            ("model", pulled.name),
            ("revision", f"{pulled.revision}, commit {pulled.commit}"),
            ("folder", pulled.folder),
            ("files", f"{pulled.num_files}, {human_bytes(pulled.total_bytes)}, {checked}"),
            ("downloaded", human_bytes(pulled.fetched_bytes)),
            ("next", f"glm serve {pulled.name}"),
        ]
    )
