"""`glm pull`: brings a model from the hub, so that `--model ORG/NAME` finds it."""

import click

from glm_engine import options
from glm_engine.console import bytes_progress, human_bytes, print_fields, print_json

MOST_WORKERS = 64
DEFAULT_WORKERS = 8


@options.command("pull")
@click.argument("name", metavar="ORG/NAME")
@click.option("--revision", default="main", show_default=True, help="A branch, tag or commit.")
@click.option(
    "--max-workers",
    type=options.Whole(1, MOST_WORKERS),
    default=DEFAULT_WORKERS,
    show_default=True,
    help="Files that are fetched side by side.",
)
@options.JSON
def command(name, revision, max_workers, as_json):
    """Bring the model ORG/NAME from the Hugging Face hub, or go on with a pull that was cut.

    Each file is checked against the hub's digest before it gets its name. HF_HOME, HF_TOKEN,
    HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean to the hub's own tools.
    """
    from glm_engine.hub.pull import pull
    from glm_engine.loading import in_thread

    with bytes_progress(quiet=as_json) as show:
        pulled = in_thread(lambda: pull(name, revision, max_workers, show))
    print_json(report_of(pulled)) if as_json else print_pulled(pulled)


def report_of(pulled):
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


def print_pulled(pulled):
    checked = "all checked" if pulled.is_checked else "not checked again: HF_HUB_OFFLINE is set"
    print_fields(
        [
            ("model", pulled.name),
            ("revision", f"{pulled.revision}, commit {pulled.commit}"),
            ("folder", pulled.folder),
            ("files", f"{pulled.num_files}, {human_bytes(pulled.total_bytes)}, {checked}"),
            ("fetched", f"{pulled.fetched_bytes:,} B"),
            ("to serve", f"glm serve --model {pulled.name}"),
        ]
    )
