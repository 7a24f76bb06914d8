"""Where an option's value comes from: the command line, else its variable, else the file of
`--config`, else its default. click keeps this order; here each option gets its variable, and the
file is read.
"""

import difflib
import functools
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from glm_engine.cli import help_pages
from glm_engine.cli.aliases import (
    TYPED,
    Foreign,
    alias_typed,
    canonical_key,
    flag_of,
    foreign_options,
    key_of,
    no_such_option,
)
from glm_engine.cli.help_pages import Option
from glm_engine.core.errors import BadInputError, refuse_empty, variable
from glm_engine.core.files import read_text

PREFIX = "GLM_"
NO_DEFAULT = "none"
MOST_SHOWN = 60
FILE = "config"
TEXTS = {"question", "prompt"}
UNQUOTED = 'Got unexpected words ({}): put the whole text in quotes, e.g. `{} "Hello, world"`'
FILE_IN_CONTEXT = f"{__name__}.{FILE}"


class PlainCommand(click.Command):
    """A command that shows its help for -h and --help in any context."""

    def get_help_option_names(self, _ctx: click.Context) -> list[str]:
        return ["-h", "--help"]


class Command(PlainCommand):
    """A command whose options have variables, may stand in a file, and are never stated empty."""

    context_class: type[click.Context] = help_pages.HelpContext

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings["show_default"] = True
        if TEXTS & {param.name for param in self.params}:
            self.context_settings["allow_extra_args"] = True
        self.params.append(file_option())
        for param in self.params:
            name_sources(param)

    @functools.cached_property
    def foreign(self) -> list[Foreign]:
        return foreign_options(self)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        end = len(self.params)
        return [*own[:end], *self.foreign, *own[end:]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = {}
        try:
            if not ctx.resilient_parsing:
                self.refuse_empty_values(ctx, args)
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise no_such_option(error.option_name, self, ctx) from error
        except click.BadParameter as error:
            name_source_of_error(error, ctx)
            raise
        if rest and not ctx.resilient_parsing:
            raise click.UsageError(UNQUOTED.format(" ".join(rest), ctx.command_path), ctx)
        return rest

    def refuse_empty_values(self, ctx: click.Context, args: Sequence[str]) -> None:
        stated, _, _ = self.make_parser(ctx).parse_args(list(args))
        for param in self.get_params(ctx):
            value = stated.get(param.name)
            for one in value if isinstance(value, list | tuple) else (value,):
                refuse_empty(stated_name(param), one)
            envvar = param.envvar if isinstance(param.envvar, str) else None
            if envvar and (text := variable(envvar)) and param.multiple:
                refuse_empty(envvar, text.strip())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_pages.write_options(self, ctx, formatter)


def file_option() -> Option:
    return Option(
        [f"--{FILE}"],
        type=click.Path(),
        is_eager=True,
        expose_value=False,
        callback=use_file,
        help="TOML file with options, e.g. max-seq = 8192; a table, e.g. [serve], applies only to"
        " that"
        " command. Environment variables, e.g. GLM_MAX_SEQ, override the file; the command line"
        " overrides both.",
    )


def name_sources(param: click.Parameter) -> None:
    """Give an option its variable, and one without a default a word that says so."""
    if isinstance(param, click.Option):
        param.envvar = variable_of(key_of(param))
        states_default = param.to_info_dict()["default"] not in (None, ())
        if not (param.is_flag or param.required or param.show_default or states_default):
            param.show_default = NO_DEFAULT


def variable_of(key: str) -> str:
    """Return the variable of a parameter by its name in a file."""
    return PREFIX + key.replace("-", "_").upper()


def stated_name(param: click.Parameter) -> str:
    """Return how users write an option, or how the help calls an argument."""
    is_option = isinstance(param, click.Option)
    return flag_of(param) if is_option else param.human_readable_name.strip("[]")


def name_source_of_error(error: click.BadParameter, ctx: click.Context) -> None:
    """Let an error about a value name the variable, or the file and key, that stated it."""
    if error.param is None:
        return
    source = ctx.get_parameter_source(error.param.name)
    if source is ParameterSource.ENVIRONMENT:
        error.param_hint = error.param.envvar
    elif source is ParameterSource.DEFAULT_MAP:
        error.param_hint = f"{ctx.meta[FILE_IN_CONTEXT]}: {key_of(error.param)}"
    elif alias := alias_typed(error.param, ctx):
        error.param_hint = repr(alias)


def use_file(ctx: click.Context, _param: click.Parameter, path: str | None) -> None:
    """Let the values of a file be the defaults of what is read after it."""
    if path is None:
        return
    ctx.meta[FILE_IN_CONTEXT] = path
    document = read_toml(path)
    refuse_unknown(path, document, ctx.find_root().command, ctx)
    stated = stated_for(ctx, document)
    ctx.default_map = {
        param.name: checked_value(f"{path}: {key}", param, stated[key])
        for key, param in keys_of(ctx.command).items()
        if key in stated
    }


def read_toml(path: str) -> dict[str, Any]:
    """Return what a TOML file holds; else BadInputError."""
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: invalid TOML: {error}") from error


def keys_of(command: click.Command) -> dict[str, click.Parameter]:
    """Return the options of a command that a file may state, by key."""
    found = {key_of(one): one for one in command.params if isinstance(one, click.Option)}
    return {key: param for key, param in found.items() if key != FILE}


def commands_below(command: click.Command, ctx: click.Context) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {}
    found = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
    return {name: one for name, one in found.items() if one is not None}


def known_keys(command: click.Command, ctx: click.Context) -> set[str]:
    """Return the keys of a command, or of all that stand below a group."""
    below = commands_below(command, ctx)
    if not below:
        return set(keys_of(command))
    return set().union(*(known_keys(one, ctx) for one in below.values()))


def refuse_unknown(
    where: str, table: Mapping[str, Any], command: click.Command, ctx: click.Context
) -> None:
    """Raise BadInputError for a key or table that no command knows, with the nearest known one."""
    below, keys = commands_below(command, ctx), known_keys(command, ctx)
    for name, value in table.items():
        is_table = isinstance(value, dict)
        known = below if is_table else keys
        if name not in known:
            shown = f"[{name}]" if is_table else name
            raise BadInputError(f"{where}: {shown} is unknown{nearest(name, known, is_table)}")
        if is_table:
            refuse_unknown(f"{where}: [{name}]", value, below[name], ctx)


def nearest(name: str, known: Collection[str], is_table: bool) -> str:
    """Return the end of the sentence: the known name that is meant, if one is."""
    if is_table and not known:
        return ": no table is expected here"
    meant = name if is_table else canonical_key(name)
    found = [meant] if meant in known else difflib.get_close_matches(meant, sorted(known), n=1)
    if not found:
        return ""
    return f"; did you mean {f'[{found[0]}]' if is_table else found[0]}?"


def stated_for(ctx: click.Context, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file states for a command: its own table wins over what stands above it."""
    tables = [document]
    for name in ctx.command_path.split()[1:]:
        tables.append(tables[-1].get(name, {}))
    rows = (row for table in tables for row in table.items())
    return {key: value for key, value in rows if not isinstance(value, dict)}


def checked_value(where: str, param: click.Parameter, value: object) -> bool | str | list[str]:
    """Return a file's value as the command line would state it; else BadInputError."""
    if isinstance(param, click.Option) and param.is_flag:
        return value if isinstance(value, bool) else refuse_value(where, "true or false", value)
    if not param.multiple:
        return as_text(where, value)
    if not isinstance(value, list) or not value:
        refuse_value(where, "a non-empty list", value)
    return [as_text(where, one) for one in value]


def as_text(where: str, value: object) -> str:
    refuse_empty(where, value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        refuse_value(where, "a string or a number", value)
    return str(value)


def refuse_value(where: str, expected: str, value: object) -> NoReturn:
    names = {bool: str(value).lower(), list: "a list" if value else "an empty list"}
    shown = names.get(type(value), repr(value)[:MOST_SHOWN])
    raise BadInputError(f"{where}: expected {expected}, got {shown}")
