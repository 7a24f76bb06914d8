"""`glm help`: the help of a command, or the page of options that many commands share."""

import click

from glm_engine import help_pages, options


@click.command("help", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", nargs=-1, metavar="[COMMAND|engine|sampling]")
@click.pass_context
def command(ctx, words):
    """Show the help of glm, of a command, or of the engine or sampling options."""
    if len(words) == 1 and words[0] in options.TOPICS:
        click.echo(topic_page(words[0]))
        return
    shown = ctx.find_root()
    for word in words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"`{shown.command_path}` has no commands, got {word!r}", ctx)
        name, found, _ = shown.command.resolve_command(shown, [word])
        settings = found.context_settings
        shown = found.context_class(found, info_name=name, parent=shown, **settings)
    click.echo(shown.get_help())


def topic_page(topic):
    """Return the page of the options of a topic."""

    def carrier():
        """Carry the options."""

    for option in reversed(options.TOPICS[topic].values()):
        option()(carrier)
    page = options.command(topic)(carrier)
    context = help_pages.HelpContext(page, **page.context_settings)
    return help_pages.topic_page(topic, page.params[:-1], context)
