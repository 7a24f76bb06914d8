"""The reference of the command line, from click's own description of every command."""

import inspect
from collections.abc import Iterable, Iterator

import click

from glm_engine.cli import help_pages
from glm_engine.cli.command_line import commands
from glm_engine.cli.help_pages import HelpContext
from tools.site import markdown

INTRODUCTION = """# Command line

This page is generated from the program; `glm COMMAND --help` prints the same text.

You can set an option on the command line (`--max-seq 8192`), in its environment variable
(`GLM_MAX_SEQ=8192`), or in the file that `--config` names ([Configuration](../configuration.md)).
The command line overrides the variable, and the variable overrides the file. Every command also
has `--config` and `--help`.
"""
EVERYWHERE = {"--config", "--help"}
Sections = dict[str, dict[tuple[str, str], None]]


def contexts(parent: click.Context) -> Iterator[click.Context]:
    """A context for each command below a group's, depth first."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = command.context_class(command, info_name=name, parent=parent)
        yield context
        if isinstance(command, click.Group):
            yield from contexts(context)


def root() -> click.Context:
    return HelpContext(commands, info_name="glm")


def record(option: click.Option, context: click.Context) -> tuple[str, str]:
    """How the help calls an option, and what it says of it."""
    names, text = help_pages.record(option, context)
    return names, text.replace(help_pages.WHOLE_HYPHEN, "-")


def sections(context: click.Context) -> tuple[Sections, Sections]:
    """What the help says of a command's options: by heading, and by topic of those that it shares.

    An option of a topic that has a default of this command's own is shown with the command, too.
    """
    shown: Sections = {}
    topics: Sections = {}
    for option in context.command.get_params(context):
        if not isinstance(option, click.Option) or option.hidden or EVERYWHERE & {*option.opts}:
            continue
        topic, is_own = getattr(option, "topic", None), getattr(option, "is_own", False)
        found, title = (topics, topic) if topic and not is_own else (shown, group_of(option))
        found.setdefault(title, {})[record(option, context)] = None
    return shown, topics


def group_of(option: click.Option) -> str:
    return getattr(option, "group", "Options")


def option_table(shown: Iterable[tuple[str, str]]) -> list[str]:
    rows = [(markdown.code(names), markdown.cell(text)) for names, text in shown]
    return markdown.table(("option", "meaning"), rows)


def command_lines(context: click.Context, all_topics: Sections) -> list[str]:
    """One command: usage, help, options; those of a topic are added to it and linked."""
    usage = context.command.get_usage(context).split(":", 1)[1]
    lines = [f"## {context.command_path}", "", f"    {' '.join(usage.split())}", ""]
    lines += [inspect.cleandoc(context.command.help or "").replace("\b", ""), ""]
    shown, topics = sections(context)
    for title, records in shown.items():
        lines += ["", f"**{title}**", *option_table(records)]
    for topic, records in topics.items():
        all_topics.setdefault(topic, {}).update(records)
        lines += ["", f"This command also has the [{topic} options](#{topic}).", ""]
    return lines


def page() -> str:
    """The whole page."""
    topics: Sections = {}
    lines = [INTRODUCTION]
    for context in contexts(root()):
        lines += command_lines(context, topics)
    for topic, shown in topics.items():
        lines += [f"## {topic.capitalize()} options {{#{topic}}}", *option_table(shown)]
    return markdown.page(lines)
