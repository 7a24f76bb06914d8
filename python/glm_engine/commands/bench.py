"""`glm bench`: prefill and decode of a model, beside what the memory would allow."""

import random

import click

from glm_engine import options
from glm_engine.bench import costs as model_costs
from glm_engine.console import count_progress, print_json

DEFAULT_BATCHES = "1,8,16,64"
DEFAULT_CONTEXTS = "128"
DEFAULT_PREFILL = "1024"
SPARE_TOKENS = 64
LEAST_STEP_TOKENS = 512


class NumberList(click.ParamType):
    """Whole numbers above 0, with commas between: 1,8,64."""

    name = "numbers"

    def convert(self, value, param, ctx):
        if isinstance(value, tuple):
            return value
        texts = [text.strip() for text in value.split(",") if text.strip()]
        return tuple(options.POSITIVE.convert(text, param, ctx) for text in texts)


@options.command("bench")
@options.model_or_synthetic
@click.option("--batch", "batches", type=NumberList(), default=DEFAULT_BATCHES)
@click.option("--context", "contexts", type=NumberList(), default=DEFAULT_CONTEXTS)
@click.option("--prefill", "lengths", type=NumberList(), default=DEFAULT_PREFILL)
@click.option("--steps", "num_steps", type=options.POSITIVE, default=64)
@click.option("--profile/--no-profile", default=True, help="Device time of each operation.")
@click.option(
    "--seed", type=options.SEED, show_default="a fresh one", help="Seed of the random prompts."
)
@click.option("--output", type=click.Path(), help="Write the report to this JSON file.")
@click.option("--plot", type=click.Path(), help="Write PLOT.png and PLOT.svg.")
@click.option("--show", "shown", type=click.Path(), help="Show a report measured before.")
@options.engine_options_with(
    max_batch="the largest of --batch",
    max_seq="what the points need",
    step_budget_ms="0",
)
@options.drawing_options
@options.JSON
def command(shown, output, plot, as_json, **values):
    """Measure prefill and decode by true forward passes of random tokens."""
    from glm_engine.bench import plots, report
    from glm_engine.files import prepare_target, write_report

    if output:
        prepare_target(output)
    if plot:
        plots.prepare_plot(plot)
    made = report.read_report(shown) if shown else measure(as_json, **values)
    print_json(made) if as_json else report.print_report(made)
    if output:
        write_report(made, output)
    if plot:
        plots.plot_report(made, plot)


def measure(as_json, model_dir, synthetic, num_layers, engine_values, **wanted):
    from glm_engine.bench import report
    from glm_engine.files import read_object
    from glm_engine.loading import load_engine

    source, path = model_costs.config_of(model_dir, synthetic)
    asked = sized_options(engine_values, wanted)
    chosen = options.make_engine_options(
        path if synthetic else source,
        asked,
        synthetic=bool(synthetic),
        num_layers=num_layers,
        prefix_cache=False,
    )
    engine, seconds = load_engine(chosen, quiet=as_json)
    with engine:
        info = engine.info()
        config = read_object(path)
        costs = model_costs.Costs(config, info["num_layers"], info["kv_bytes_per_token"])
        read_rate = engine.read_rate() * num_memories(info)
        decode, prefill = measure_points(engine, costs, read_rate, as_json, wanted)
        return report.make_report(str(source), engine.info(), seconds, read_rate, decode, prefill)


def num_memories(info):
    """Return how many memories a step reads at once: the ranks' own, but one of all CPU ranks."""
    return 1 if info["device"].startswith("CPU") else info["world_size"]


def sized_options(engine_values, wanted):
    """Fill in max_batch and max_seq so that every point asked for has room."""
    from glm_engine.bench.runs import output_length

    values = dict(engine_values)
    values["max_batch"] = values["max_batch"] or max(wanted["batches"], default=1)
    least = max(LEAST_STEP_TOKENS, 2 * values["max_batch"])
    step_tokens = values["max_step_tokens"] or least
    values["step_budget_ms"] = values["step_budget_ms"] or 0
    if not values["max_seq"]:
        points = [(batch, context) for batch in wanted["batches"] for context in wanted["contexts"]]
        lengths = [
            context + output_length(batch, context, wanted["num_steps"], step_tokens)
            for batch, context in points
        ]
        values["max_seq"] = max([*lengths, *wanted["lengths"], 1]) + SPARE_TOKENS
    return values


def measure_points(engine, costs, read_rate, quiet, wanted):
    generator = random.Random(wanted["seed"])
    points = [(batch, context) for context in wanted["contexts"] for batch in wanted["batches"]]
    with count_progress(len(points) + len(wanted["lengths"]), "measuring", quiet) as advance:
        prefill = [
            measure_prefill(engine, costs, generator, length, wanted, advance)
            for length in wanted["lengths"]
        ]
        decode = [
            measure_decode(engine, costs, read_rate, generator, point, wanted, advance)
            for point in points
        ]
    return decode, prefill


def measure_prefill(engine, costs, generator, length, wanted, advance):
    from glm_engine.bench import report, runs

    advance()
    info = engine.info()
    if length > info["max_seq"]:
        return {"tokens": length, "skipped": f"max_seq is {info['max_seq']}"}
    figures = report.with_flops(runs.prefill(engine, generator, length), costs)
    if wanted["profile"]:
        figures["operations"] = runs.profile_prefill(engine, generator, length)
    return figures


def measure_decode(engine, costs, read_rate, generator, point, wanted, advance):
    from glm_engine.bench import report, runs

    advance()
    batch, context = point
    asked = (batch, context, wanted["num_steps"], wanted["sampling"])
    run = runs.Decoding(engine, generator, *asked)
    if run.refusal():
        return {"batch": batch, "context": context, "skipped": run.refusal()}
    figures = report.with_floor(run.run(), costs, read_rate)
    if wanted["profile"]:
        figures["operations"] = runs.Decoding(engine, generator, *asked).profile()
    return figures
