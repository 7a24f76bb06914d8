"""The help of commands: what one needs comes first, what commands share has a page of its own."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

from glm_engine.cli.aliases import OWN_OPTIONS, aliases_of, key_of

OTHER_OPTIONS = "Other options"
WHOLE_HYPHEN = "\ue000"
EXTRA = re.compile(
    r"(?P<words>.*?)(?:(?:^|  )\[(?P<extra>[^][]*default: .*|required)\])?", re.DOTALL
)
IN_BRACKETS = re.compile(r"default: \((.*?)\)(?=;|$)")
FIRST: dict[str, tuple[str, ...]] = {
    "serve": ("model", "host", "port", "max-seq", "world-size", "api-key-file"),
    "chat": ("model", "url", "system", "max-tokens", "temperature", "think"),
    "generate": ("model", "max-tokens", "temperature", "chat", "system", "stop"),
    "plan": ("model", "device-memory", "world-size", "max-seq", "max-batch", "kv-dtype"),
    "bench": ("model", "synthetic", "batch", "context", "prefill", "output"),
    "load": ("rate", "requests", "prompts", "outputs", "max-concurrency", "output"),
    "evaluate": ("model", "device", "world-size", "facts", "limit", "threshold"),
    "smoke": ("model", "device", "world-size", "max-seq", "max-batch", "memory-limit"),
}


class Option(click.Option):
    """An option that the help lists under a heading, `group`, or on a page of its own, `topic`.

    One of a topic that `is_own` has a default of its command, which the command's help states.
    """

    def __init__(
        self,
        *args: Any,
        group: str = OWN_OPTIONS,
        topic: str | None = None,
        is_own: bool = False,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.group, self.topic, self.is_own = group, topic, is_own


Section = tuple[list[click.Option], list[Option]]


class Formatter(click.HelpFormatter):
    """A formatter that keeps the names of options whole, where lines are broken."""

    def write(self, string: str) -> None:
        super().write(string.replace(WHOLE_HYPHEN, "-"))


class HelpContext(click.Context):
    """A context whose help is written so."""

    formatter_class = Formatter


def whole(text: str) -> str:
    """Return a text in which no line is broken at a hyphen."""
    return text.replace("-", WHOLE_HYPHEN)


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of a command under headings."""
    for title, (shown, elsewhere) in sections(command, ctx).items():
        with formatter.section(title):
            if shown:
                formatter.write_dl([record(one, ctx) for one in shown])
            if shown and elsewhere:
                formatter.write_paragraph()
            if elsewhere:
                formatter.write_text(topic_line(elsewhere))


def sections(command: click.Command, ctx: click.Context) -> dict[str, Section]:
    """Return what stands under each heading: the options shown, and those on a topic's page."""
    options = [
        one for one in command.get_params(ctx) if isinstance(one, click.Option) and not one.hidden
    ]
    by_key = {key_of(one): one for one in options}
    is_in_group = ctx.parent is not None and ctx.parent.parent is not None
    keys = () if is_in_group else FIRST.get(command.name or "", ())
    first = [by_key[key] for key in keys if key in by_key]
    found: dict[str, Section] = {OWN_OPTIONS: (first, [])} if first else {}
    for option in options:
        if option in first:
            continue
        group = option.group if isinstance(option, Option) else OWN_OPTIONS
        title = OTHER_OPTIONS if first and group == OWN_OPTIONS else group
        shown, elsewhere = found.setdefault(title, ([], []))
        if isinstance(option, Option) and option.topic is not None and not option.is_own:
            elsewhere.append(option)
        else:
            shown.append(option)
    last = {OTHER_OPTIONS: found.pop(OTHER_OPTIONS)} if OTHER_OPTIONS in found else {}
    return found | last


def topic_line(options: Sequence[Option]) -> str:
    names = ", ".join(f"--{key_of(one)}" for one in options)
    return whole(f"{names}: see `glm help {options[0].topic}`.")


def record(option: click.Option, ctx: click.Context) -> tuple[str, str]:
    """Return how the help calls an option, and its text with the names of other engines."""
    names, text = option.get_help_record(ctx) or ("", "")
    match = EXTRA.fullmatch(text)
    words, extra = match.group("words", "extra") if match else (text, None)
    others = aliases_of(option)
    parts = [f"also: {', '.join(others)}"] if others else []
    parts += [IN_BRACKETS.sub(r"default: \1", extra)] if extra else []
    end = f"[{'; '.join(parts)}]" if parts else ""
    return names, whole("  ".join(filter(None, (words, end))))


def topic_page(
    topic: str, options: Iterable[click.Option], ctx: click.Context, note: str | None = None
) -> str:
    """Return the page of the options that many commands share."""
    formatter = ctx.make_formatter()
    formatter.write_text(f"The {topic} options, which many commands share.")
    if note:
        formatter.write_text(note)
    with formatter.section(topic.capitalize()):
        formatter.write_dl([record(one, ctx) for one in options])
    return formatter.getvalue().rstrip("\n")
