"""`glm help`: the help of a command, or the page of options that many commands share."""

import click

from glm_engine.cli import help_pages, options
from glm_engine.cli.option_sources import PlainCommand

NOTES = {
    "sampling": "These are the defaults of `glm generate` and `glm bench`. `glm chat` and"
    " `glm serve` use the model's own defaults."
}


@click.command("help", cls=PlainCommand)
@click.argument("words", nargs=-1, metavar="[COMMAND|engine|sampling]")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help for glm, for a command, or for the engine or sampling options."""
    if len(words) == 1 and words[0] in options.TOPICS:
        click.echo(topic_page(words[0], ctx.find_root()))
        return
    shown = ctx.find_root()
    for word in words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"`{shown.command_path}` has no subcommands, got {word!r}", ctx)
        name, found = resolved(shown, shown.command, word)
        settings = found.context_settings
        shown = found.context_class(found, info_name=name, parent=shown, **settings)
    click.echo(shown.get_help())


def resolved(ctx: click.Context, group: click.Group, word: str) -> tuple[str | None, click.Command]:
    """Return a command and its name, by a word; the error of an unknown one lists the topics."""
    try:
        name, found, _ = group.resolve_command(ctx, [word])
    except click.UsageError as error:
        topics = " and ".join(f"`glm help {one}`" for one in options.TOPICS)
        text = f"{error.message} {topics} show the options that many commands share."
        raise click.UsageError(text if ctx.parent is None else error.message, ctx) from error
    assert found is not None
    return name, found


def topic_page(topic: str, root: click.Context) -> str:
    """Return the page of the options of a topic."""

    def carrier() -> None:
        """Carry the options."""

    for option in reversed(options.TOPICS[topic].values()):
        option()(carrier)
    page = options.command(topic)(carrier)
    context = help_pages.HelpContext(page, parent=root, **page.context_settings)
    return help_pages.topic_page(topic, page.params[:-1], context, NOTES.get(topic))
