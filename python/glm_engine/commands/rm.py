"""`glm rm`: deletes models from the hub's cache."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from glm_engine.cli import options
from glm_engine.core.console import human_bytes, print_json
from glm_engine.core.errors import BadInputError, GlmError

if TYPE_CHECKING:
    from glm_engine.hub.cache import CachedModel


def complete_name(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Let the shell complete the name of a model in the cache."""
    from glm_engine.hub.cache import list_models

    return [one.name for one in list_models() if one.name.startswith(incomplete)]


@options.command("rm")
@click.argument("models", nargs=-1, required=True, shell_complete=complete_name)
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@options.JSON
def command(models: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete MODELS (ORG/NAME) and all their revisions from this machine.

    Asks first unless --yes is given, then prints how much disk space was freed.
    """
    from glm_engine.hub.cache import find_models, remove_model

    found = find_models(models)
    if not yes:
        ask(found)
    for model in found:
        remove_model(model)
        if not as_json:
            print(f"Removed {model.name}: {human_bytes(model.size_bytes)} freed.")
    if as_json:
        removed = [{"name": one.name, "freed_bytes": one.size_bytes} for one in found]
        print_json({"removed": removed})


def ask(models: "Sequence[CachedModel]") -> None:
    """Go on only if the user agrees."""
    if not sys.stdin.isatty():
        raise BadInputError("standard input is not a terminal: pass --yes to delete models")
    total = human_bytes(sum(one.size_bytes for one in models))
    listed = ", ".join(one.name for one in models)
    if not click.confirm(f"Delete {listed} ({total})?", err=True):
        raise GlmError("no models were deleted")
