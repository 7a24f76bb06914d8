"""Options of other engines in a command: other names of ours, and those without a counterpart."""

import difflib
import os
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import click

from glm_engine.cli.client_key import KEY_SOURCE
from glm_engine.cli.peer_options import (
    ABSENT,
    ABSENT_IN,
    ALIASES,
    ALWAYS,
    ANSWERS,
    DEFAULT,
    Alias,
    Answer,
)
from glm_engine.cli.peer_values import ShareOfAll
from glm_engine.core.console import tell

Options = dict[str, Any]
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


def hidden_name(flag: str) -> str:
    """Return the name of a foreign option's parameter, which hands no value over."""
    return f"as{re.sub(r'[-.]', '_', flag)}"


class Foreign(click.Option):
    """An option that states others, read before them; the help leaves most of these out."""

    def __init__(
        self, names: Sequence[str], is_flag: bool = False, is_shown: bool = False, **attributes: Any
    ) -> None:
        attributes |= {"hidden": not is_shown, "is_eager": True, "expose_value": False}
        attributes |= {"is_flag": True} if is_flag else {}
        super().__init__([hidden_name(names[0]), *names], **attributes)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[None, list[str]]:
        if self.name in opts and not ctx.resilient_parsing:
            self.stated(ctx, cast("Options", opts), opts[self.name])
        return None, args

    @abstractmethod
    def stated(self, ctx: click.Context, opts: Options, value: Any) -> None:
        """Do what a value of this option asks for; `opts` are those that are stated."""


class AliasOption(Foreign):
    """Another name of an option: it states the option's value."""

    def __init__(self, name: str, alias: Alias, target: click.Parameter) -> None:
        super().__init__((name,), alias.value is not None, multiple=target.multiple)
        self.alias, self.target = alias, target

    def stated(self, ctx: click.Context, opts: Options, value: Any) -> None:
        new, remarks = self.converted(value, ctx, opts)
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
            line = self.alias.note.format(name=self.opts[0], text=value, value=new)
            tell("; ".join((line, *remarks)))

    def converted(self, value: Any, ctx: click.Context, opts: Options) -> tuple[Any, Sequence[str]]:
        """Return the value of ours, and what is to be said beside it."""
        if self.alias.value is not None:
            return self.alias.value, ()
        convert, convert_with = self.alias.convert, self.alias.convert_with
        try:
            if convert_with is not None:
                found = convert_with(value, stated_of(self.alias.details, opts))
                return found.value, found.remarks
            if convert is None:
                return value, ()
            if self.target.multiple:
                return [one for text in value for one in convert(text)], ()
            return convert(value), ()
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, self) from error


class DetailOption(Foreign):
    """An option that an alias reads beside its own value, and that alone says too little."""

    def __init__(self, name: str, aliases: Sequence[Alias], target: click.Parameter) -> None:
        super().__init__((name,))
        self.aliases, self.target = aliases, target

    def stated(self, ctx: click.Context, opts: Options, _value: Any) -> None:
        mains = [name for alias in self.aliases for name in alias.names]
        if not stated_of(mains, opts):
            needed = next(name for name in mains if name.startswith("--"))
            text = f"{self.opts[0]} needs {needed}; or use {flag_of(self.target)} alone"
            raise click.UsageError(text, ctx)


def stated_of(names: Iterable[str], opts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of foreign options that the command line states, by name."""
    return {name: opts[hidden_name(name)] for name in names if hidden_name(name) in opts}


class AnswerOption(Foreign):
    """An option without a counterpart: refused with what does the job here, or of no effect."""

    def __init__(self, name: str, answer: Answer) -> None:
        super().__init__((name,), answer.is_flag)
        self.answer = answer

    def stated(self, ctx: click.Context, _opts: Options, value: Any) -> None:
        name, answer = self.opts[0], self.answer
        is_here = answer.command in (None, ctx.command.name)
        if not is_here or (answer.accepted != ALWAYS and value not in answer.accepted):
            raise click.UsageError(f"No such option {name!r}: {answer.text}.", ctx)
        if answer.is_told and value != DEFAULT:
            tell(f"{name} has no effect: {answer.text}")


class KeyOption(Foreign):
    """`--api-key KEY` of a client, which states the variable of its key for this process."""

    def __init__(self) -> None:
        super().__init__((KEY,), is_shown=True, metavar="KEY", help=KEY_HELP)

    def stated(self, ctx: click.Context, _opts: Options, value: Any) -> None:
        if not value.isprintable() or " " in value:
            raise click.BadParameter("expected one key without spaces", ctx, self)
        tell(KEY_NOTE)
        os.environ[KEY_VARIABLE] = value
        ctx.meta[KEY_SOURCE] = KEY


def flag_of(param: click.Parameter) -> str:
    """Return the long name of an option, or the name of an argument."""
    return next((flag for flag in param.opts if flag.startswith("--")), param.opts[0])


def alias_typed(param: click.Parameter, ctx: click.Context) -> str | None:
    """Return the other name by which the command line states an option, None if it does not."""
    typed: dict[str | None, str] = ctx.meta.get(TYPED, {})
    return typed.get(param.name)


def key_of(param: click.Parameter) -> str:
    return flag_of(param).removeprefix("--")


def aliases_of(param: click.Parameter) -> list[str]:
    """Return the names of other engines that the help shows beside an option."""
    rows = ALIASES.get(key_of(param), ())
    names = [name for row in rows if row.is_shown for name in row.names]
    return [name for name in names if name not in param.opts]


def canonical_key(key: str) -> str:
    """Return the key of an option by any of its names, with hyphens at the front or without."""
    names = (f"--{key}", key)
    rows = ((own, row) for own, found in ALIASES.items() for row in found)
    return next((own for own, row in rows if not set(row.names).isdisjoint(names)), key)


def foreign_options(command: click.Command) -> list[Foreign]:
    """Return the options that a command takes beside its own, by the names of other engines.

    A name that one of its own has, too, is an alias of that alone: it converts the value.
    """
    made: dict[str, Foreign] = {}
    for param in command.params:
        aliases = ALIASES.get(key_of(param), ())
        for alias in aliases:
            made |= {name: AliasOption(name, alias, param) for name in alias.names}
        for name in dict.fromkeys(name for alias in aliases for name in alias.details):
            made[name] = DetailOption(name, [one for one in aliases if name in one.details], param)
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


def no_such_option(name: str, command: click.Command, ctx: click.Context) -> click.UsageError:
    """Return the error of an option that a command does not have, with the one that is meant."""
    shown, name = f"No such option {name!r}", name.replace("_", "-")
    own = [
        flag for param in command.get_params(ctx) for flag in (*param.opts, *param.secondary_opts)
    ]
    key = canonical_key(name).lstrip("-")
    if key in ALIASES and name not in own:
        advice = ABSENT_IN.get((ctx.command.name or "", key)) or ABSENT.get(key)
        has = f"`{ctx.command_path}` has no --{key}" + (f"; {advice}." if advice else ".")
        return click.UsageError(has if name == f"--{key}" else f"{shown}: {has}", ctx)
    answers = [one.text for one in ANSWERS if name in one.names and one.text]
    if answers and name not in own:
        return click.UsageError(f"{shown}: {answers[0]}.", ctx)
    found = difflib.get_close_matches(name, own, n=1, cutoff=CUTOFF)
    meant = f" Did you mean {found[0]!r}?" if found else ""
    return click.UsageError(f"{shown}.{meant}", ctx)
