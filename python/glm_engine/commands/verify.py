"""`glm verify`: a device beside its oracle, operation by operation."""

from typing import TYPE_CHECKING

import click

from glm_engine.cli import options
from glm_engine.core.console import count_progress, print_columns, print_fields, print_json, verdict
from glm_engine.core.errors import BadInputError, ExitCode
from glm_engine.core.layout import CAPITALS

if TYPE_CHECKING:
    from glm_engine.verify.verification import Verification

TITLES = ("operation", "shape", ">rows", ">greatest error", ">limit", "result")
MEANWHILE = " Until that is fixed, use --device futhark."


@options.command("verify")
@options.with_argument(options.MODEL_OR_NONE)
@options.SYNTHETIC_MODEL
@click.option(
    "--device",
    type=click.Choice(options.DEVICES),
    default="auto",
    help="Device to check; auto means the GPU if there is one, otherwise the CPU.",
)
@options.JSON
def command(model_dir: str | None, synthetic: str | None, device: str, as_json: bool) -> ExitCode:
    """Check this machine's device, operation by operation, at the widths of MODEL.

    Each operation runs on the device and on its oracle with equal random inputs; only MODEL's
    config.json is read. An error is the greatest relative L2 error of a row, or the fraction of
    values that differ. Exits with 1 if an error exceeds its limit.
    """
    from glm_engine.bench.costs import config_path
    from glm_engine.core.files import read_object
    from glm_engine.verify import verification
    from glm_engine.verify.model_shape import model_shape

    source = named_config(model_dir, synthetic)
    shape = model_shape(read_object(config_path(source)))
    kind = verification.chosen_kind(device)
    if kind == "cpu":
        made = verification.verify_ranks(kind, shape)
    else:
        with count_progress(verification.NUM_COMPARISONS, "operations", as_json) as advance:
            made = verification.verify_device(kind, shape, advance)
    if as_json:
        print_json({"model": source, **made.as_dict()})
    else:
        print_verification(source, made)
    return ExitCode.OK if made.passed else ExitCode.FAILED


def named_config(model_dir: str | None, synthetic: str | None) -> str:
    """Return what names the config.json; of a model on the hub only that file is downloaded."""
    from glm_engine.hub.names import find_config

    if model_dir is not None and synthetic:
        raise BadInputError("--model and --synthetic cannot be used together")
    return synthetic or find_config(str(CAPITALS) if model_dir is None else model_dir)


def print_verification(source: str, made: "Verification") -> None:
    from glm_engine.verify.verification import table

    print_fields(
        [
            ("device", f"{made.device}: {made.name}"),
            ("oracle", made.oracle),
            ("model", source),
            *(("note", each) for each in made.notes),
        ]
    )
    print()
    print_columns(TITLES, table(made.findings))
    print()
    print(verdict(last_line(made), made.passed))


def last_line(made: "Verification") -> str:
    """Return what the comparison says: all agree, or which do not and what to do meanwhile."""
    if made.passed:
        return f"All {len(made.findings)} comparisons are within their limits."
    return f"Failed: {', '.join(made.failed)}.{MEANWHILE if made.device == 'cuda' else ''}"
