"""The command `glm`. Exit codes: 0 success · 1 failure · 2 bad input ·
3 the engine cannot run here · 130 interrupted.
"""

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

import click

from glm_engine.core.console import coloured, printable
from glm_engine.core.errors import ExitCode, GlmError, variable
from glm_engine.core.interrupts import is_interrupt, let_interrupts_end, let_interrupts_raise

TRACEBACK_VARIABLE = "GLM_TRACEBACK"
OUTPUT_FAILURES = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
COMMANDS = {
    "serve": "Serve a model over an OpenAI- and Anthropic-compatible HTTP API.",
    "chat": "Chat in the terminal with a local or served model.",
    "generate": "Complete one prompt.",
    "batch": "Answer a file of requests in OpenAI's batch format.",
    "pull": "Download a model from the Hugging Face hub.",
    "list": "List the models on this machine.",
    "rm": "Delete models from this machine.",
    "plan": "Show whether a model fits in memory, without loading it.",
    "inspect": "List a checkpoint's tensors and report any problems with it.",
    "bench": "Measure prefill and decode speed.",
    "load": "Load-test a server.",
    "verify": "Check the device, operation by operation, against its oracle.",
    "smoke": "Check that the engine answers a question correctly.",
    "evaluate": "Measure accuracy on questions about the world's capitals.",
    "deploy": "Download, check, benchmark and serve a model, here or on Modal.",
    "doctor": "Check the devices, libraries and packages on this machine.",
    "help": "Show help for glm, for a command, or for the engine or sampling options.",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        let_interrupts_end()
        try:
            command: click.Command = importlib.import_module(f"glm_engine.commands.{name}").command
            return command
        finally:
            let_interrupts_raise()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            text = f"No such option {name!r} before a command: expected `glm COMMAND {name}`"
            raise click.UsageError(text, ctx) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if not name.startswith("-") and name not in COMMANDS:
            name = known_name(name, ctx)
        return super().resolve_command(ctx, [name, *rest])

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def known_name(name: str, ctx: click.Context) -> str:
    """Return our name of another engine's command; else an error with what is meant."""
    import difflib

    from glm_engine.cli import peer_commands

    meant = peer_commands.VERBS.get(name)
    if meant in COMMANDS:
        return meant
    found = difflib.get_close_matches(name, COMMANDS, n=1)
    answer = peer_commands.ANSWERS.get(name)
    if answer:
        end = f": {answer}."
    else:
        end = f". Did you mean {found[0]!r}?" if found else ". `glm --help` lists the commands."
    raise click.UsageError(f"No such command {name!r}{end}", ctx)


def print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from glm_engine.version import version

        click.echo(f"glm {version()}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Run `glm COMMAND --help` to see the options of a command. Exit codes: 0 success, 1"
    " failure,"
    " 2 bad input, 3 the engine cannot run on this machine, 130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_version,
    help="Print the version and exit.",
)
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Serve, chat with and benchmark GLM-4 mixture-of-experts models.

    MODEL is a checkpoint folder, or ORG/NAME of a model on the Hugging Face hub.
    """
    from glm_engine.cli import unknown_variables

    unknown_variables.warn_of_unknown_variables(ctx)
    unknown_variables.warn_of_foreign_variables(ctx)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; users never see a traceback."""
    open_missing_streams()
    shows_traceback = None
    try:
        shows_traceback = variable(TRACEBACK_VARIABLE)
        code = commands.main(args=arguments, prog_name="glm", standalone_mode=False)
        sys.stdout.flush()
        return int(code or ExitCode.OK)
    except click.exceptions.NoArgsIsHelpError as error:
        with output_dropped(sys.__stderr__):
            error.show()
        return error.exit_code
    except click.ClickException as error:
        return report(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        return interrupted(error.__cause__ or error)
    except GlmError as error:
        from glm_engine.core.engine_words import for_users

        return report(for_users(error), error.exit_code)
    except Exception as error:
        if is_interrupt(error):
            return interrupted()
        if isinstance(error, OSError) and error.filename is not None:
            return report(f"{error.filename}: {error.strerror}", ExitCode.BAD_INPUT)
        if isinstance(error, OSError) and error.errno in OUTPUT_FAILURES:
            return output_failed(error)
        if shows_traceback:
            raise
        text = (
            f"unexpected {type(error).__name__}: {error} "
            f"(set {TRACEBACK_VARIABLE}=1 for the traceback)"
        )
        return report(text, ExitCode.ENGINE)


def open_missing_streams() -> None:
    """Let streams that were closed before the start read nothing and take everything."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            stream = os.fdopen(number, "w" if number else "r", closefd=False)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def report(text: str, exit_code: int) -> int:
    with output_dropped(sys.__stdout__):
        sys.stdout.flush()
    line = printable(" ".join(text.split()))
    with output_dropped(sys.__stderr__):
        print(coloured(f"glm: {line}", "error", sys.stderr), file=sys.stderr, flush=True)
    return int(exit_code)


def output_failed(error: OSError) -> int:
    """End with 1: nobody takes the output. That a pipe's reader has gone needs no word."""
    drop(sys.__stdout__)
    if error.errno == errno.EPIPE:
        return ExitCode.FAILED
    return report(f"cannot write to standard output: {error.strerror}", ExitCode.FAILED)


@contextlib.contextmanager
def output_dropped(stream: TextIO | None) -> Iterator[None]:
    """Go on where a stream takes nothing."""
    try:
        yield
    except OSError:
        drop(stream)


def drop(stream: TextIO | None) -> None:
    """Let what is still held back for a stream go nowhere, so that Python ends quietly."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def interrupted(cause: BaseException | None = None) -> int:
    """End with 130; a load still running in C must not hold the process back.

    A KeyboardInterrupt may say how to continue. click raises Abort from it.
    """
    advice = f". {cause}" if isinstance(cause, KeyboardInterrupt) and cause.args else ""
    code = report(f"interrupted{advice}", ExitCode.INTERRUPTED)
    loading = sys.modules.get("glm_engine.core.loading")
    if loading and loading.is_loading():
        sys.stderr.flush()
        os._exit(code)
    return code
