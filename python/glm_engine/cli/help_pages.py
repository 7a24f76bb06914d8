"""The help of commands: what one needs comes first, what commands share has a page of its own."""

import re

import click

from glm_engine.cli.aliases import OWN_OPTIONS, aliases_of, key_of

OTHER_OPTIONS = "Other options"
WHOLE_HYPHEN = "\ue000"
EXTRA = re.compile(
    r"(?P<words>.*?)(?:(?:^|  )\[(?P<extra>[^][]*default: .*|required)\])?", re.DOTALL
)
IN_BRACKETS = re.compile(r"default: \((.*?)\)(?=;|$)")
FIRST = {
    "serve": ("model", "host", "port", "max-seq", "world-size", "api-key-file"),
    "chat": ("model", "url", "system", "max-tokens", "temperature", "think"),
    "generate": ("model", "max-tokens", "temperature", "chat", "system", "stop"),
    "plan": ("model", "device-memory", "world-size", "max-seq", "max-batch", "kv-dtype"),
    "bench": ("model", "synthetic", "batch", "context", "prefill", "output"),
    "load": ("rate", "requests", "prompts", "outputs", "max-concurrency", "output"),
    "evaluate": ("model", "device", "world-size", "facts", "limit", "threshold"),
    "smoke": ("model", "device", "world-size", "max-seq", "max-batch", "memory-limit"),
}


class Formatter(click.HelpFormatter):
    """A formatter that keeps the names of options whole, where lines are broken."""

    def write(self, string):
        super().write(string.replace(WHOLE_HYPHEN, "-"))


class HelpContext(click.Context):
    """A context whose help is written so."""

    formatter_class = Formatter


def whole(text):
    """Return a text in which no line is broken at a hyphen."""
    return text.replace("-", WHOLE_HYPHEN)


def write_options(command, ctx, formatter):
    """Write the options of a command under headings."""
    for title, (shown, elsewhere) in sections(command, ctx).items():
        with formatter.section(title):
            if shown:
                formatter.write_dl([record(one, ctx) for one in shown])
            if shown and elsewhere:
                formatter.write_paragraph()
            if elsewhere:
                formatter.write_text(topic_line(elsewhere))


def sections(command, ctx):
    """Return what stands under each heading: the options shown, and those on a topic's page."""
    options = [
        one for one in command.get_params(ctx) if isinstance(one, click.Option) and not one.hidden
    ]
    by_key = {key_of(one): one for one in options}
    is_in_group = ctx.parent is not None and ctx.parent.parent is not None
    keys = () if is_in_group else FIRST.get(command.name, ())
    first = [by_key[key] for key in keys if key in by_key]
    found = {OWN_OPTIONS: (first, [])} if first else {}
    for option in options:
        if option in first:
            continue
        group = getattr(option, "group", OWN_OPTIONS)
        title = OTHER_OPTIONS if first and group == OWN_OPTIONS else group
        is_elsewhere = getattr(option, "topic", None) is not None and not option.is_own
        found.setdefault(title, ([], []))[is_elsewhere].append(option)
    last = {OTHER_OPTIONS: found.pop(OTHER_OPTIONS)} if OTHER_OPTIONS in found else {}
    return found | last


def topic_line(options):
    names = ", ".join(f"--{key_of(one)}" for one in options)
    return whole(f"{names}: see `glm help {options[0].topic}`.")


def record(option, ctx):
    """Return how the help calls an option, and its text with the names of other engines."""
    names, text = option.get_help_record(ctx)
    words, extra = EXTRA.fullmatch(text).group("words", "extra")
    others = aliases_of(option)
    parts = [f"also: {', '.join(others)}"] if others else []
    parts += [IN_BRACKETS.sub(r"default: \1", extra)] if extra else []
    end = f"[{'; '.join(parts)}]" if parts else ""
    return names, whole("  ".join(filter(None, (words, end))))


def topic_page(topic, options, ctx, note=None):
    """Return the page of the options that many commands share."""
    formatter = ctx.make_formatter()
    formatter.write_text(f"The {topic} options, which many commands share.")
    if note:
        formatter.write_text(note)
    with formatter.section(topic.capitalize()):
        formatter.write_dl([record(one, ctx) for one in options])
    return formatter.getvalue().rstrip("\n")
