"""`glm bench`: prefill and decode speed of a model, beside the limit of memory bandwidth."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from glm_engine.bench import costs as model_costs
from glm_engine.cli import options
from glm_engine.cli.option_types import POSITIVE, NumberList
from glm_engine.core.console import count_progress, print_json
from glm_engine.core.reports import EngineInfo, device_kind

if TYPE_CHECKING:
    from glm_engine.core.engine import Engine
    from glm_engine.core.requests import Sampling

Report = dict[str, Any]
DEFAULT_BATCHES = "1,8,16,64"
DEFAULT_CONTEXTS = "128"
DEFAULT_PREFILL = "1024"
SPARE_TOKENS = 64
LEAST_STEP_TOKENS = 512


@dataclass(frozen=True)
class Wanted:
    """What to measure: sizes, the number of decode steps, and how tokens are drawn.

    most_tokens: of a request in one step, on average.
    """

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    lengths: tuple[int, ...]
    num_steps: int
    seed: int | None
    sampling: "Sampling"
    profile: bool
    most_tokens: float


@options.command("bench")
@options.model_or_synthetic
@click.option(
    "--batch",
    "batches",
    type=NumberList(),
    default=DEFAULT_BATCHES,
    help="Batch sizes to measure decode at, comma-separated.",
)
@click.option(
    "--context",
    "contexts",
    type=NumberList(),
    default=DEFAULT_CONTEXTS,
    help="Context lengths to measure decode at, in tokens, comma-separated.",
)
@click.option(
    "--prefill",
    "lengths",
    type=NumberList(),
    default=DEFAULT_PREFILL,
    help="Prompt lengths to measure prefill at, in tokens, comma-separated.",
)
@click.option(
    "--steps",
    "num_steps",
    type=POSITIVE,
    default=64,
    help="Number of decode steps to measure at each batch size.",
)
@click.option(
    "--profile/--no-profile",
    "is_profiled",
    default=None,
    show_default="on with --json or --output",
    help="Time each operation on the device and print a table for each measurement.",
)
@click.option(
    "--seed",
    type=options.SEED,
    show_default="random",
    help="Seed for the random prompts.",
)
@click.option("--output", type=click.Path(), help="Write the report to this JSON file.")
@click.option("--plot", type=click.Path(), help="Plot the report to PATH.png and PATH.svg.")
@click.option("--show", "shown", type=click.Path(), help="Print a report saved with --output.")
@options.engine_options_with(
    max_batch="the largest value of --batch",
    max_seq="long enough for the measurements",
    step_budget_ms="0",
)
@options.drawing_options
@options.JSON
def command(
    shown: str | None,
    output: str | None,
    plot: str | None,
    as_json: bool,
    is_profiled: bool | None,
    **values: Any,
) -> None:
    """Measure prefill and decode speed with forward passes over random tokens."""
    from glm_engine.bench import plots, roofline
    from glm_engine.core.files import prepare_target, write_report

    if output:
        prepare_target(output)
    if plot:
        plots.prepare_plot(plot)
    profiles = bool(as_json or output) if is_profiled is None else is_profiled
    made = roofline.read_report(shown) if shown else measure(as_json, profile=profiles, **values)
    print_json(made) if as_json else roofline.print_report(made, with_operations=bool(is_profiled))
    if output:
        write_report(made, output)
    if plot:
        plots.plot_report(made, plot)


def measure(
    as_json: bool,
    model_dir: str | None,
    synthetic: str | None,
    num_layers: int | None,
    acceptance_length: float | None,
    engine_values: dict[str, Any],
    **values: Any,
) -> Report:
    from glm_engine.bench import roofline, steps
    from glm_engine.core.files import read_object
    from glm_engine.core.loading import load_engine

    source, path = model_costs.config_of(model_dir, synthetic)
    drafts = engine_values.get("max_draft_tokens", 0)
    wanted = Wanted(**values, most_tokens=steps.tokens_per_step(drafts, acceptance_length))
    asked = sized_options(engine_values, wanted)
    chosen = options.make_engine_options(
        str(path) if synthetic else source,
        asked,
        synthetic=bool(synthetic),
        num_layers=num_layers,
        acceptance_length=acceptance_length,
        prefix_cache=False,
    )
    engine, seconds = load_engine(chosen, quiet=as_json)
    with engine:
        info = engine.info()
        config = read_object(path)
        costs = model_costs.Costs(config, info["num_layers"], info["kv_bytes_per_token"])
        read_rate = engine.read_rate() * num_memories(info)
        decode, prefill = measure_points(engine, costs, read_rate, as_json, wanted)
        return roofline.make_report(str(source), engine.info(), seconds, read_rate, decode, prefill)


def num_memories(info: EngineInfo) -> int:
    """Return how many memories a step reads at once: one for each GPU, one for all CPU ranks."""
    return 1 if device_kind(info["device"]) == "cpu" else info["world_size"]


def sized_options(engine_values: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """Fill in max_batch and max_seq so that every measurement fits."""
    from glm_engine.bench.steps import output_length

    values = dict(engine_values)
    values["max_batch"] = values["max_batch"] or max(wanted.batches, default=1)
    least = max(LEAST_STEP_TOKENS, 2 * values["max_batch"])
    step_tokens = values["max_step_tokens"] or least
    values["step_budget_ms"] = values["step_budget_ms"] or 0
    if not values["max_seq"]:
        points = [(batch, context) for batch in wanted.batches for context in wanted.contexts]
        lengths = [
            context
            + wanted.most_tokens * output_length(batch, context, wanted.num_steps, step_tokens)
            for batch, context in points
        ]
        values["max_seq"] = math.ceil(max([*lengths, *wanted.lengths, 1])) + SPARE_TOKENS
    return values


def measure_points(
    engine: "Engine", costs: model_costs.Costs, read_rate: float, quiet: bool, wanted: Wanted
) -> tuple[list[Report], list[Report]]:
    generator = random.Random(wanted.seed)
    points = [(batch, context) for context in wanted.contexts for batch in wanted.batches]
    prefill: list[Report] = []
    decode: list[Report] = []
    with count_progress(len(points) + len(wanted.lengths), "measurements", quiet) as advance:
        for length in wanted.lengths:
            prefill.append(measure_prefill(engine, costs, generator, length, wanted))
            advance()
        for point in points:
            decode.append(measure_decode(engine, costs, read_rate, generator, point, wanted))
            advance()
    return decode, prefill


def measure_prefill(
    engine: "Engine",
    costs: model_costs.Costs,
    generator: random.Random,
    length: int,
    wanted: Wanted,
) -> Report:
    from glm_engine.bench import roofline, steps

    info = engine.info()
    if length > info["max_seq"]:
        return {"tokens": length, "skipped": f"longer than max_seq, {info['max_seq']}"}
    figures: Report = roofline.with_flops(steps.prefill(engine, generator, length), costs)
    if wanted.profile:
        figures["operations"] = steps.profile_prefill(engine, generator, length)
    return figures


def measure_decode(
    engine: "Engine",
    costs: model_costs.Costs,
    read_rate: float,
    generator: random.Random,
    point: tuple[int, int],
    wanted: Wanted,
) -> Report:
    from glm_engine.bench import roofline, steps

    batch, context = point
    asked = (batch, context, wanted.num_steps, wanted.sampling, wanted.most_tokens)
    run = steps.Decoding(engine, generator, *asked)
    if run.refusal():
        return {"batch": batch, "context": context, "skipped": run.refusal()}
    figures: Report = roofline.with_floor(run.run(), costs, read_rate, run.always_predicts())
    if wanted.profile:
        figures["operations"] = steps.Decoding(engine, generator, *asked).profile()
    return figures
