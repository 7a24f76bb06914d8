"""How the tools of this folder fail: one line, and an exit status of the `glm` command's."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from glm_engine.core.errors import ExitCode, GlmError


@contextmanager
def errors_in_one_line(tool: str, *others: type[Exception]) -> Iterator[None]:
    """Ends the process on a `GlmError`, or one of the `others`, with `tool: what it says`; an
    error that names no status is bad input. Ctrl-C ends it without a word."""
    try:
        yield
    except (GlmError, *others) as error:
        click.echo(f"{tool}: {error}", err=True)
        sys.exit(getattr(error, "exit_code", ExitCode.BAD_INPUT))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
