"""`glm plan`: what fits, before a byte is loaded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import SizeOfOne
from glm_engine.core.console import (
    FEWEST_GPUS,
    batch_line,
    context_line,
    human_bytes,
    human_count,
    print_columns,
    print_fields,
    print_json,
    verdict,
)
from glm_engine.core.engine_words import in_options
from glm_engine.core.errors import EngineError, ExitCode, Status
from glm_engine.core.reports import Plan, RankPlan
from glm_engine.core.requests import EngineOptions

ON_GPUS = " To plan for GPUs, specify the memory of each, e.g. --device-memory 141GB."
MakePlan = Callable[[EngineOptions], Plan]
Row = tuple[str, str]


class Planned(Plan, total=False):
    """A plan, and what drafting takes on a rank; of what fits nowhere, only why it does not."""

    draft_bytes: int
    draft_weight_bytes: int
    draft_kv_bytes: int


@options.command("plan")
@options.MODEL
@click.option(
    "--device-memory",
    "device_memory_bytes",
    type=SizeOfOne(),
    show_default="the free memory of this machine's devices",
    help="Plan for GPUs with this much free memory each, e.g. 141GB; no GPU is needed on this"
    " machine.",
)
@click.option("--buffers", is_flag=True, help="List every workspace buffer with its size in bytes.")
@options.engine_options
@options.JSON
def command(
    model_dir: str,
    engine_values: dict[str, Any],
    device_memory_bytes: int | None,
    buffers: bool,
    as_json: bool,
) -> ExitCode:
    """Show whether MODEL fits in memory, and how long a context and how many requests it leaves
    room for.

    No weights are loaded: MODEL may also be a config.json or a built-in name, e.g. glm-4.7-fp8.
    1 GB is 10^9 bytes. Exits with 1 if the model does not fit.
    """
    from glm_engine.core.engine import plan
    from glm_engine.core.loading import in_thread
    from glm_engine.hub.names import find_config

    chosen = options.make_engine_options(
        find_config(model_dir), engine_values, device_memory_bytes=device_memory_bytes
    )
    try:
        planned = in_thread(lambda: planned_with_advice(chosen, plan))
    except EngineError as error:
        if error.status != Status.GLM_OUT_OF_MEMORY:
            raise with_advice(error, chosen) from error
        planned = cast(Planned, {"fits": False, "reason": str(error), "advice": ""})
    planned["model_dir"] = str(model_dir)
    if as_json:
        print_json(planned)
    else:
        print_plan(planned, buffers, is_chosen=not chosen.world_size)
    return ExitCode.OK if planned["fits"] else ExitCode.FAILED


def planned_with_advice(chosen: EngineOptions, plan: MakePlan) -> Planned:
    """Return the plan; if the model does not fit, also say which GPUs hold it or how to ask."""
    planned = cast(Planned, plan(chosen))
    if planned["fits"]:
        add_drafts(planned, chosen, plan)
        return planned
    if planned["device"] == "cpu":
        planned["advice"] += ON_GPUS if chosen.device == "auto" else ""
    elif chosen.world_size:
        other = plan(replace(chosen, world_size=0))
        planned["advice"] += f" world_size {other['world_size']} fits." if other["fits"] else ""
    return planned


def add_drafts(planned: Planned, chosen: EngineOptions, plan: MakePlan) -> None:
    """Add what drafting takes on a rank: workspace, and the prediction layer's bytes."""
    if not planned["max_draft_tokens"]:
        return
    size = planned["world_size"]
    plain = plan(replace(chosen, speculate="off", max_draft_tokens=0, world_size=size))
    rank, plain_rank = planned["ranks"][0], plain["ranks"][0]
    plain_cache = planned["num_pages"] * plain["page_bytes"]
    planned["draft_bytes"] = rank["buffer_bytes"] - plain_rank["buffer_bytes"]
    planned["draft_weight_bytes"] = rank["weight_bytes"] - plain_rank["weight_bytes"]
    planned["draft_kv_bytes"] = rank["kv_bytes"] - plain_cache


def with_advice(error: EngineError, chosen: EngineOptions) -> EngineError:
    """Return the error; where a GPU is absent it says how to plan without one."""
    is_absent = chosen.device == "cuda" and error.status == Status.GLM_NOT_SUPPORTED
    if not is_absent or chosen.device_memory_bytes:
        return error
    return EngineError(error.operation, error.status, f"{error}.{ON_GPUS}")


def print_plan(planned: Planned, buffers: bool, is_chosen: bool) -> None:
    if "ranks" in planned:
        print_fields(fields(planned, is_chosen))
        print()
    if buffers and "buffers" in planned:
        rows = [(name, f"{size:,}") for name, size in planned["buffers"].items()]
        print_columns(("buffer", ">bytes"), rows)
        print()
    if planned["fits"]:
        print(verdict("Fits.", True))
    else:
        text = f"Does not fit: {planned['reason']}. {planned['advice']}".rstrip()
        print(verdict(in_options(text), False))


def fields(planned: Planned, is_chosen: bool) -> list[Row]:
    """Return the rows of the table: sizes, then what they leave room for if the model fits."""
    rank, is_split = planned["ranks"][0], planned["world_size"] > 1
    where = " per GPU" if planned["device"] != "cpu" else " per rank" if is_split else ""
    copies = ", including a copy of the embeddings and routers" if is_split else ""
    parameters = human_count(planned["num_parameters"])
    size = human_bytes(planned["checkpoint_bytes"])
    rows = [
        ("Model", f"{planned['model_dir']}, {parameters} parameters, {size} of weights"),
        devices(planned, is_chosen),
        available(planned),
        (f"Weights{where}", f"{human_bytes(rank['weight_bytes'])}{copies}"),
        (f"Workspace{where}", human_bytes(rank["buffer_bytes"])),
    ]
    return rows + (room(planned, rank, where) if planned["fits"] else [])


def room(planned: Planned, rank: RankPlan, where: str) -> list[Row]:
    shared = planned["world_size"] if planned["device"] == "cpu" else 1
    free = planned["memory_free_bytes"] - shared * rank["total_bytes"]
    cache = f"{human_bytes(rank['kv_bytes'])} in {planned['kv_dtype']}"
    return [
        (f"KV cache{where}", cache),
        ("Free" if shared > 1 else f"Free{where}", human_bytes(free)),
        ("Context length", context_line(planned)),
        ("Concurrent requests", f"{planned['concurrent_requests']:,} at the full context length"),
        ("KV cache capacity", f"{planned['tokens_of_context']:,} tokens"),
        ("Maximum batch", batch_line(planned)),
        ("Tokens per pass", f"up to {planned['max_step_tokens']:,}"),
        *drafts_rows(planned, where),
    ]


def drafts_rows(planned: Planned, where: str) -> list[Row]:
    """Return what drafts take, and what the prediction layer does or why they do without it."""
    rows, state = [], planned["prediction_layer"]
    if "draft_bytes" in planned:
        count, more = planned["max_draft_tokens"], human_bytes(planned["draft_bytes"])
        rows += [("Draft tokens", f"up to {count} per request; {more} of the workspace{where}")]
    if state in ("missing", "unusable"):
        rows += [("Prediction layer", f"{state}: {planned['prediction_layer_note']}")]
    if state == "loaded":
        weights = human_bytes(planned["draft_weight_bytes"])
        cache = human_bytes(planned["draft_kv_bytes"])
        text = f"{weights} of the weights, {cache} of the KV cache{where}"
        rows += [("Prediction layer", text)]
    return rows


def devices(planned: Planned, is_chosen: bool) -> Row:
    count, memory = planned["world_size"], human_bytes(planned["memory_free_bytes"])
    if planned["device"] == "cpu":
        ranks = "" if count == 1 else f", {count} ranks"
        return "CPU", f"{memory} of free memory{ranks}"
    chosen = f"; {FEWEST_GPUS}" if is_chosen and planned["fits"] else ""
    return "GPUs", f"{count} with {memory} of free memory{' each' if count > 1 else ''}{chosen}"


def available(planned: Planned) -> Row:
    """Return the row of the memory that the plan may use."""
    limit, free = planned["memory_limit_bytes"], planned["memory_free_bytes"]
    where = "" if planned["device"] == "cpu" else " per GPU"
    share = f"{limit / max(free, 1):.0%} of free memory; --memory-limit"
    return f"Available{where}", f"{human_bytes(limit, decimals=2)} ({share})"
