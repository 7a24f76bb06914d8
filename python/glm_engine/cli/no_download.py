"""`--no-download`: the option of each command that takes a model."""

from typing import Any

import click

from glm_engine.cli import option_sources
from glm_engine.cli.aliases import OWN_OPTIONS
from glm_engine.cli.help_pages import Option

OF_A_MODEL = {"model_dir", "tokenizer_dir"}
NO_DOWNLOAD, FORBIDDEN = "no_download", f"{__name__}.forbidden"


class Command(option_sources.Command):
    """A command that has `--no-download` if it takes a model."""

    def __init__(
        self, *args: Any, params: list[click.Parameter] | None = None, **attributes: Any
    ) -> None:
        params = list(params or ())
        places = [place for place, one in enumerate(params, 1) if one.name in OF_A_MODEL]
        if places:
            group = getattr(params[places[0] - 1], "group", OWN_OPTIONS)
            params.insert(places[0], no_download_option(group))
        super().__init__(*args, params=params, **attributes)

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta[FORBIDDEN] = ctx.params.pop(NO_DOWNLOAD, False)
        return super().invoke(ctx)


def no_download_option(group: str) -> Option:
    return Option(
        ["--no-download"],
        is_flag=True,
        group=group,
        help="Fail if the model is not in the cache, instead of downloading it. HF_HOME sets the"
        " cache folder, and HF_ENDPOINT sets the hub's URL.",
    )


def downloads_are_forbidden() -> bool:
    """Say whether the command that runs was given `--no-download`."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and ctx.meta.get(FORBIDDEN, False)
