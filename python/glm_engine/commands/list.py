"""`glm list`: the models in the hub's cache."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from glm_engine.cli import options
from glm_engine.core.console import counted, human_bytes, print_columns, print_json

if TYPE_CHECKING:
    from glm_engine.hub.cache import CachedModel

COLUMNS = ("model", ">size", "modified", "state")


@options.command("list")
@options.JSON
def command(as_json: bool) -> None:
    """List the models on this machine: name, size, download date and state.

    The states are: ready; incomplete (run `glm pull` again); unchecked (downloaded by another
    tool; run `glm pull` to verify it); config only (only config.json was downloaded, for
    `glm plan`); unsupported (glm cannot run this model). HF_HOME and HF_HUB_CACHE set
    the cache folder that glm lists.
    """
    from glm_engine.hub.cache import list_models
    from glm_engine.hub.names import cache_folder

    models, folder = list_models(), str(cache_folder())
    if as_json:
        print_json({"cache": folder, "models": [asdict(one) for one in models]})
    elif models:
        print_columns(COLUMNS, [row(one) for one in models])
        total = human_bytes(sum(one.size_bytes for one in models))
        print(f"\n{counted(len(models), 'model')} in {folder}, {total} in total")
    else:
        print(f"No models in {folder}. `glm pull ORG/NAME` downloads one.")


def row(model: "CachedModel") -> tuple[str, ...]:
    """Return a model's line of the table."""
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.modified))
    state = model.state + (f" ({model.model_type})" if model.state == "unsupported" else "")
    return model.name, human_bytes(model.size_bytes), date, state
