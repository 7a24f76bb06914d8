"""What the commands of this folder share: their options, and errors in one line."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from click.decorators import FC

from glm_engine.bench.costs import SYNTHETIC
from glm_engine.cli import options
from glm_engine.cli.option_types import WorldSize
from glm_engine.core.errors import ExitCode, GlmError

model = click.option(
    "--synthetic", "model", default="glm-4.5-air-fp8", show_default=True, help=", ".join(SYNTHETIC)
)
device = click.option(
    "--device", type=click.Choice(options.DEVICES), default="auto", show_default=True
)
world_size = click.option("--world-size", type=WorldSize(1), default="auto", show_default=True)
expert_layout = click.option("--expert-layout", type=click.Choice(options.LAYOUTS))
seed = click.option("--seed", type=options.SEED, default=3, show_default=True)
ranks_per_device = click.option(
    "--ranks-per-device",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="Ranks on each GPU; set it to the number of ranks to run all of them on one GPU.",
)


def output(what: str) -> Callable[[FC], FC]:
    """The option for the file that a command writes `what` to."""
    text = f"Write {what} to this file as JSON."
    return click.option("--output", type=click.Path(path_type=Path), help=text)


@contextmanager
def errors_in_one_line(tool: str, *others: type[Exception]) -> Iterator[None]:
    """Ends the process on a `GlmError`, or one of the `others`, with `tool: what it says`; an
    error that names no status is bad input. Ctrl-C ends it without a word."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (GlmError, *others)):
            raise
        click.echo(f"{tool}: {error}", err=True)
        sys.exit(getattr(error, "exit_code", ExitCode.BAD_INPUT))
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
