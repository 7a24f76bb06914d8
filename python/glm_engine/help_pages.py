"""The help of commands: what one needs comes first, what commands share has a page of its own."""

import re

import click

from glm_engine.aliases import OWN_OPTIONS, aliases_of, key_of

OTHER_OPTIONS = "Other options"
WHOLE_HYPHEN = "\ue000"
EXTRA = re.compile(r"(?P<words>.*?)(?:(?:^|  )\[(?P<extra>[^][]*default: .*|required)\])?", re.DOTALL)
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
    """Return a text in which no line is broken at a hyphen of an option's name."""
    return re.sub(r"(?<![\w-])-[\w-]+", lambda found: found[0].replace("-", WHOLE_HYPHEN), text)


def write_options(command, ctx, formatter):
    """Write the options of a command under headings."""
    shown, topics = sections(command, ctx)
    for title, options in shown.items():
        with formatter.section(title):
            formatter.write_dl([record(one, ctx) for one in options])
            if title in topics:
                formatter.write_paragraph()
                formatter.write_text(topic_line(*topics.pop(title)))
    for title, found in topics.items():
        with formatter.section(title):
            formatter.write_text(topic_line(*found))


def sections(command, ctx):
    """Return the options under each heading, and the (topic, options) of those on its page."""
    options = [
        one for one in command.get_params(ctx) if isinstance(one, click.Option) and not one.hidden
    ]
    by_key = {key_of(one): one for one in options}
    first = [by_key[key] for key in FIRST.get(command.name, ()) if key in by_key]
    shown, topics = ({OWN_OPTIONS: first} if first else {}), {}
    for option in options:
        group = getattr(option, "group", OWN_OPTIONS)
        if option in first:
            continue
        if getattr(option, "topic", None) and not option.is_own:
            topics.setdefault(group, (option.topic, []))[1].append(option)
            continue
        is_other = first and group == OWN_OPTIONS
        shown.setdefault(OTHER_OPTIONS if is_other else group, []).append(option)
    if OTHER_OPTIONS in shown:
        shown[OTHER_OPTIONS] = shown.pop(OTHER_OPTIONS)
    return shown, topics


def topic_line(topic, options):
    names = ", ".join(f"--{key_of(one)}" for one in options)
    return whole(f"{names}: see `glm help {topic}`.")


def record(option, ctx):
    """Return how the help calls an option, and its text with the names of other engines."""
    names, text = option.get_help_record(ctx)
    words, extra = EXTRA.fullmatch(text).group("words", "extra")
    others = aliases_of(option)
    parts = [f"also: {', '.join(others)}"] if others else []
    parts += [IN_BRACKETS.sub(r"default: \1", extra)] if extra else []
    end = f"[{'; '.join(parts)}]" if parts else ""
    return names, whole("  ".join(filter(None, (words, end))))


def topic_page(topic, options, ctx):
    """Return the page of the options that many commands share."""
    formatter = ctx.make_formatter()
    formatter.write_text(f"The {topic} options, which many commands take.")
    with formatter.section(topic.capitalize()):
        formatter.write_dl([record(one, ctx) for one in options])
    return formatter.getvalue().rstrip("\n")
