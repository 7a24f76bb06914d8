"""Options of other engines in a command: other names of ours, and those without a counterpart."""

import difflib
import os
import sys

import click

from glm_engine.client_key import KEY_SOURCE
from glm_engine.peer_options import ABSENT, ABSENT_IN, ALIASES, ALWAYS, ANSWERS, DEFAULT
from glm_engine.peer_values import ShareOfAll

CUTOFF = 0.8
OWN_OPTIONS = "Options"
TYPED = f"{__name__}.typed"
KEY, KEY_VARIABLE = "--api-key", "GLM_API_KEY"
KEY_HELP = (
    "The server's API key. Other users on this machine can see it in the process list; prefer"
    " --api-key-file or GLM_API_KEY."
)
KEY_NOTE = (
    "other users on this machine can see --api-key in the process list;"
    f" use --api-key-file or the variable {KEY_VARIABLE} instead"
)


class Foreign(click.Option):
    """An option that states others, read before them; the help leaves most of these out."""

    def __init__(self, names, is_flag=False, is_shown=False, **attributes):
        name = f"as{names[0].replace('-', '_')}"
        attributes |= {"is_flag": True} if is_flag else {}
        super().__init__(
            [name, *names], hidden=not is_shown, is_eager=True, expose_value=False, **attributes
        )

    def handle_parse_result(self, ctx, opts, args):
        if self.name in opts and not ctx.resilient_parsing:
            self.stated(ctx, opts, opts[self.name])
        return None, args


class AliasOption(Foreign):
    """Another name of an option: it states the option's value."""

    def __init__(self, name, alias, target):
        super().__init__((name,), alias.value is not None, multiple=target.multiple)
        self.alias, self.target = alias, target

    def stated(self, ctx, opts, value):
        new = self.converted(value, ctx)
        if new is None:
            return
        old = opts.get(self.target.name)
        if self.target.multiple:
            new = [*(old if isinstance(old, list | tuple) else ()), *new]
        elif isinstance(old, str | bool | ShareOfAll) and old != new:
            names = f"{alias_typed(self.target, ctx) or flag_of(self.target)} and {self.opts[0]}"
            raise click.UsageError(f"{names} set the same option: use only one", ctx)
        opts[self.target.name] = new
        ctx.meta.setdefault(TYPED, {})[self.target.name] = self.opts[0]
        if self.alias.note:
            tell(self.alias.note.format(name=self.opts[0], text=value, value=new))

    def converted(self, value, ctx):
        if self.alias.value is not None:
            return self.alias.value
        convert = self.alias.convert
        if convert is None:
            return value
        try:
            if self.target.multiple:
                return [one for text in value for one in convert(text)]
            return convert(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, self) from error


class AnswerOption(Foreign):
    """An option without a counterpart: refused with what does the job here, or of no effect."""

    def __init__(self, name, answer):
        super().__init__((name,), answer.is_flag)
        self.answer = answer

    def stated(self, ctx, opts, value):
        del opts
        name, answer = self.opts[0], self.answer
        is_here = answer.command in (None, ctx.command.name)
        if not is_here or (answer.accepted != ALWAYS and value not in answer.accepted):
            raise click.UsageError(f"No such option {name!r}: {answer.text}.", ctx)
        if answer.is_told and value != DEFAULT:
            tell(f"{name} has no effect: {answer.text}")


class KeyOption(Foreign):
    """`--api-key KEY` of a client, which states the variable of its key for this process."""

    def __init__(self):
        super().__init__((KEY,), is_shown=True, metavar="KEY", help=KEY_HELP)

    def stated(self, ctx, opts, value):
        del opts
        if not value.isprintable() or " " in value:
            raise click.BadParameter("expected one key without spaces", ctx, self)
        tell(KEY_NOTE)
        os.environ[KEY_VARIABLE] = value
        ctx.meta[KEY_SOURCE] = KEY


def tell(line):
    print(f"glm: {line}", file=sys.stderr, flush=True)


def flag_of(param):
    """Return the long name of an option, or the name of an argument."""
    return next((flag for flag in param.opts if flag.startswith("--")), param.opts[0])


def alias_typed(param, ctx):
    """Return the other name by which the command line states an option, None if it does not."""
    return ctx.meta.get(TYPED, {}).get(param.name)


def key_of(param):
    return flag_of(param).removeprefix("--")


def aliases_of(param):
    """Return the names of other engines that the help shows beside an option."""
    rows = ALIASES.get(key_of(param), ())
    names = [name for row in rows if row.is_shown for name in row.names]
    return [name for name in names if name not in param.opts]


def canonical_key(key):
    """Return the key of an option by any of its names, with hyphens at the front or without."""
    names = (f"--{key}", key)
    rows = ((own, row) for own, found in ALIASES.items() for row in found)
    return next((own for own, row in rows if not set(row.names).isdisjoint(names)), key)


def foreign_options(command):
    """Return the options that a command takes beside its own, by the names of other engines.

    A name that one of its own has, too, is an alias of that alone: it converts the value.
    """
    made = {}
    for param in command.params:
        for alias in ALIASES.get(key_of(param), ()):
            made |= {name: AliasOption(name, alias, param) for name in alias.names}
    if "max_batch" in {param.name for param in command.params}:
        for answer in ANSWERS:
            for name in answer.names:
                made.setdefault(name, AnswerOption(name, answer))
    if "url" in {param.name for param in command.params}:
        made[KEY] = KeyOption()
    own = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return [
        option
        for name, option in made.items()
        if own.get(name) in (None, getattr(option, "target", None))
    ]


def no_such_option(name, command, ctx):
    """Return the error of an option that a command does not have, with the one that is meant."""
    shown, name = f"No such option {name!r}", name.replace("_", "-")
    own = [
        flag for param in command.get_params(ctx) for flag in (*param.opts, *param.secondary_opts)
    ]
    key = canonical_key(name).lstrip("-")
    if key in ALIASES and name not in own:
        advice = ABSENT_IN.get((ctx.command.name, key)) or ABSENT.get(key)
        has = f"`{ctx.command_path}` has no --{key}" + (f"; {advice}." if advice else ".")
        return click.UsageError(has if name == f"--{key}" else f"{shown}: {has}", ctx)
    answers = [one.text for one in ANSWERS if name in one.names and one.text]
    if answers and name not in own:
        return click.UsageError(f"{shown}: {answers[0]}.", ctx)
    found = difflib.get_close_matches(name, own, n=1, cutoff=CUTOFF)
    meant = f" Did you mean {found[0]!r}?" if found else ""
    return click.UsageError(f"{shown}.{meant}", ctx)
