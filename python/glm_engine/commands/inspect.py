"""`glm inspect`: lists the tensors of a checkpoint and its problems."""

import re
from collections.abc import Sequence

import click

from glm_engine.cli import options
from glm_engine.core.console import (
    human_bytes,
    human_count,
    print_columns,
    print_fields,
    print_json,
)
from glm_engine.core.errors import ExitCode
from glm_engine.core.reports import Inspection, Shard, Tensor

TENSOR_COLUMNS = ("tensor", "dtype", ">shape", ">bytes", "file", "used")
SHARD_COLUMNS = ("shard", ">tensors", ">bytes")


@options.command("inspect")
@options.MODEL
@click.option(
    "--match",
    "pattern",
    default="",
    help="List only tensors whose names match this regular expression.",
)
@click.option("--summary", is_flag=True, help="Do not list the tensors.")
@options.JSON
def command(model_dir: str, pattern: str, summary: bool, as_json: bool) -> ExitCode:
    """List a checkpoint's tensors and report any problems with it.

    MODEL may also be a config.json. Exits with 1 if the checkpoint has problems.
    """
    from glm_engine.core.engine import inspect_checkpoint
    from glm_engine.core.loading import in_thread
    from glm_engine.hub.names import find_checkpoint, refuse_other_file

    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise click.BadParameter(str(error), param_hint="--match") from error
    model_dir = find_checkpoint(model_dir)
    refuse_other_file(model_dir)
    found = in_thread(lambda: inspect_checkpoint(model_dir))
    tensors = [one for one in found["tensors"] if wanted.search(one["name"])]
    found["tensors"] = [] if summary else tensors
    if as_json:
        print_json(found)
    else:
        print_found(found, tensors)
    return ExitCode.FAILED if found["problems"] else ExitCode.OK


def print_found(found: Inspection, tensors: Sequence[Tensor]) -> None:
    if found["tensors"]:
        print_columns(TENSOR_COLUMNS, [tensor_row(one) for one in found["tensors"]])
        print()
    if found["shards"]:
        print_columns(SHARD_COLUMNS, [shard_row(one) for one in found["shards"]])
        print()
    print_fields(
        [
            ("checkpoint", found["model_dir"]),
            ("architecture", found["architecture"]),
            ("layers", found["num_layers"]),
            ("prediction layer", prediction(found)),
            ("parameters", parameters(found["num_parameters"])),
            ("not used", parameters(found["num_parameters_skipped"])),
            ("bytes", f"{found['checkpoint_bytes']:,} ({human_bytes(found['checkpoint_bytes'])})"),
            ("tensors", f"{len(tensors):,}"),
            ("problems", len(found["problems"])),
        ]
    )
    for problem in found["problems"]:
        parts = (problem["file"], problem["tensor"], problem["message"])
        print(f"  {': '.join(filter(None, parts))}")


def prediction(found: Inspection) -> str:
    """Return whether the checkpoint has the layer that `--speculate mtp` drafts with."""
    state, note = found["prediction_layer"], found["prediction_layer_note"]
    words = {"none": "none", "missing": "missing", "available": "yes"}[state]
    return f"{words}: {note}" if note else words


def parameters(count: int) -> str:
    return f"{count:,} ({human_count(count)})"


def tensor_row(one: Tensor) -> tuple[str, ...]:
    shape = " x ".join(map(str, one["shape"])) or "scalar"
    used = "skipped" if one["skipped"] else "yes"
    return one["name"], one["dtype"], shape, f"{one['bytes']:,}", one["file"], used


def shard_row(one: Shard) -> tuple[str, ...]:
    return one["file"], f"{one['num_tensors']:,}", f"{one['bytes']:,}"
