"""`glm plan`: what fits, before a byte is loaded."""

import click

from glm_engine import options
from glm_engine.console import (
    human_bytes,
    human_count,
    make_table,
    print_columns,
    print_fields,
    print_json,
    print_table,
    world_size_choice,
)
from glm_engine.errors import EngineError, ExitCode, Status
from glm_engine.sizes import batch_line, context_line

RANK_COLUMNS = (
    ("weights", "weight_bytes"),
    ("KV pages", "kv_bytes"),
    ("workspace", "buffer_bytes"),
    ("pinned host", "host_bytes"),
    ("total", "total_bytes"),
    ("memory", "memory_bytes"),
)


@options.command("plan")
@options.MODEL
@click.option(
    "--device-memory",
    "device_memory_bytes",
    type=options.PositiveSize(),
    help="Plan for devices with so much free memory each, such as 141GB, which need not be here.",
)
@click.option("--buffers", is_flag=True, help="List every buffer of the workspace.")
@options.engine_options
@options.JSON
def command(model_dir, engine_values, device_memory_bytes, buffers, as_json):
    """Say what of MODEL (a folder, a config.json alone, or a name of bench) fits on each rank.

    Exits with 1, and the reason, when it does not fit.
    """
    from glm_engine.engine import plan
    from glm_engine.hub.names import find_config
    from glm_engine.loading import in_thread

    chosen = options.make_engine_options(
        find_config(model_dir), engine_values, device_memory_bytes=device_memory_bytes
    )
    try:
        planned = in_thread(lambda: plan(chosen))
    except EngineError as error:
        if error.status != Status.GLM_OUT_OF_MEMORY:
            raise with_advice(error, chosen) from error
        planned = {"fits": False, "reason": str(error)}
    planned["model_dir"] = str(model_dir)
    if as_json:
        print_json(planned)
    else:
        print_plan(planned, buffers, is_chosen=not chosen.world_size)
    return ExitCode.OK if planned["fits"] else ExitCode.FAILED


def with_advice(error, chosen):
    """Return the error; where a GPU is absent it says how to plan without one."""
    if chosen.device != "cuda" or error.status != Status.GLM_NOT_SUPPORTED:
        return error
    if chosen.device_memory_bytes:
        return error
    text = f"{error}; --device-memory 141GB plans for GPUs that are not here"
    return EngineError(error.operation, error.status, text)


def print_plan(planned, buffers, is_chosen):
    if "ranks" in planned:
        print_fields(fields(planned, is_chosen))
        print()
        print_table(rank_table(planned["ranks"]))
        print()
    if buffers and "buffers" in planned:
        rows = [(name, f"{size:,}") for name, size in planned["buffers"].items()]
        print_columns(("buffer of rank 0", ">bytes"), rows)
        print()
    print("fits" if planned["fits"] else f"does not fit: {planned['reason']}")


def fields(planned, is_chosen):
    return [
        ("checkpoint", planned["model_dir"]),
        ("architecture", planned["architecture"]),
        ("device", f"{planned['device']}, {ranks(planned, is_chosen)}"),
        ("experts", planned["expert_layout"]),
        ("parameters", both(planned, "num_parameters", human_count)),
        ("checkpoint bytes", both(planned, "checkpoint_bytes", human_bytes)),
        ("KV type", planned["kv_dtype"]),
        ("KV per token", kv_per_token(planned)),
        ("pages", pages(planned)),
        ("context", context_line(planned)),
        ("batch", batch_line(planned)),
        ("step", f"{planned['max_step_tokens']:,} tokens at most"),
        ("pool", pool(planned)),
    ]


def ranks(planned, is_chosen):
    if is_chosen and planned["fits"] and planned["device"] != "cpu":
        return world_size_choice(planned["world_size"])
    return f"world size {planned['world_size']}"


def both(planned, name, human):
    """A figure, and the same with the multi-token-prediction layers where there are any."""
    value, whole = planned[name], planned.get(f"{name}_with_nextn", planned[name])
    text = f"{value:,} ({human(value)})"
    return text if whole == value else f"{text}; with prediction layers {whole:,} ({human(whole)})"


def kv_per_token(planned):
    value, bf16 = planned["kv_bytes_per_token"], planned.get("kv_bytes_per_token_bf16")
    text = f"{value:,} B ({value / 1024:,.1f} KiB)"
    return text if bf16 in (None, value) else f"{text}; in BF16 {bf16:,} B ({bf16 / 1024:,.1f} KiB)"


def pages(planned):
    return (
        f"{planned['num_pages']:,} of {planned['page_size']} tokens, "
        f"{planned['page_bytes']:,} B each"
    )


def pool(planned):
    return (
        f"{planned['tokens_of_context']:,} tokens in all, "
        f"whole contexts in it: {planned['concurrent_requests']:,}"
    )


def rank_table(ranks):
    table = make_table(">rank", *[f">{title}" for title, _ in RANK_COLUMNS])
    for rank in ranks:
        table.add_row(str(rank["rank"]), *[cell(rank, name) for _, name in RANK_COLUMNS])
    return table


def cell(rank, name):
    return human_bytes(rank[name]) if name in rank else "-"
