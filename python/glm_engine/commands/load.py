"""`glm load`: requests that arrive on their own clock, at a server or straight in an engine."""

import secrets
import sys

import click

from glm_engine import options
from glm_engine.console import print_json
from glm_engine.errors import BadInputError, ExitCode
from glm_engine.load.records import LOST
from glm_engine.values import variable

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_REQUESTS = 100
FILE = "file:"
ENGINE_OPTIONS = (*options.ENGINE, "tokenizer_dir", "synthetic", "num_layers", "model_dir")
LONGEST_TIMEOUT = 10_000_000.0
LEAST_BURSTINESS, MOST_BURSTINESS = 0.001, 1_000_000.0


@options.command("load")
@click.argument("url", metavar="[URL]", default=DEFAULT_URL)
@click.option("--rate", "rates", default="inf", help="1/s, such as 1,2,4,inf.")
@click.option(
    "--requests",
    "num_requests",
    type=options.POSITIVE,
    show_default=str(DEFAULT_REQUESTS),
    help="Of each rate.",
)
@click.option("--seconds", type=options.Finite(min=0, min_open=True), help="Of each rate.")
@click.option(
    "--burstiness",
    type=options.Finite(LEAST_BURSTINESS, MOST_BURSTINESS),
    default=1.0,
    help="Shape of the gamma distribution of gaps; 1: Poisson, below: burstier.",
)
@click.option(
    "--max-concurrency",
    type=options.POSITIVE,
    show_default="no limit",
    help="Requests under way at most.",
)
@click.option(
    "--prompts",
    default="uniform:32:512",
    help="Lengths in tokens: fixed:N, uniform:A:B, lognormal:MEDIAN:SIGMA[:MOST]; or file:PATH.",
)
@click.option("--outputs", default="fixed:128", help="Lengths, likewise.")
@click.option("--shared-prefix", type=options.NOT_NEGATIVE, default=0, help="Tokens before each.")
@click.option("--endpoint", type=click.Choice(["completions", "chat"]), default="completions")
@click.option("--stream/--no-stream", "is_streaming", default=True)
@click.option("--temperature", type=options.Finite(min=0), default=0.0)
@click.option(
    "--ignore-eos/--stop-at-eos",
    default=True,
    help="Outputs as long as asked, or ended by the model.",
)
@click.option("--goodput", help="Limits to keep, such as ttft:200ms,tpot:50ms,e2e:2s.")
@click.option(
    "--warm-up",
    "num_warm_up",
    type=options.NOT_NEGATIVE,
    default=4,
    help="Requests before the first rate that are not measured.",
)
@click.option(
    "--timeout",
    type=options.Finite(min=0, min_open=True, max=LONGEST_TIMEOUT),
    default=600.0,
    help="Seconds after which a request is given up.",
)
@click.option(
    "--workers",
    "num_workers",
    type=options.Whole(1, 64),
    default=1,
    help="Processes that share the requests.",
)
@click.option("--served-model-name",
    "served_model", show_default="the first that is served", help="Name to ask for.")
@click.option("--seed", type=options.SEED, show_default="a fresh one, printed")
@click.option("--output", type=click.Path(), help="Write the report to this JSON file.")
@click.option("--plot", type=click.Path(), help="Write PLOT.png and PLOT.svg.")
@click.option("--show", "shown", type=click.Path(), help="Show a report measured before.")
@click.option(
    "--engine",
    "in_engine",
    is_flag=True,
    help="The same, in an engine of this process, which the headings describe.",
)
@options.model_options
@options.TOKENIZER
@options.engine_options
@options.JSON
def command(shown, output, plot, as_json, **values):
    """Load the server at URL with requests that do not wait for each other, and measure.

    The API key is taken from GLM_API_KEY. With --engine no server is asked: the same requests go
    into an engine of this process, which takes the options of a model and a device.
    """
    from glm_engine.files import prepare_target, write_report
    from glm_engine.load import plots, report

    if output is not None:
        prepare_target(output)
    if plot is not None:
        plots.prepare_plot(plot)
    made = measure(as_json, **values) if shown is None else report.read_report(shown)
    try:
        print_json(made) if as_json else report.print_report(made)
        sys.stdout.flush()
    finally:
        if output is not None:
            write_report(made, output)
        if plot is not None:
            plots.plot_report(made, plot)
    return exit_code(made)


def exit_code(report):
    """130 after an interruption, 1 where a rate completed no request or a client process died."""
    if report["is_interrupted"]:
        return ExitCode.INTERRUPTED
    points = report["points"]
    is_done = all(point["num_completed"] and LOST not in point["outcomes"] for point in points)
    return ExitCode.OK if is_done else ExitCode.FAILED


def measure(as_json, in_engine, **values):
    from glm_engine.load import report

    if not in_engine:
        options.refuse_stated("only with --engine", *ENGINE_OPTIONS)
    elif options.is_stated("url"):
        raise BadInputError(f"--engine asks no server, and {values['url']} would not be asked")
    schedule = make_schedule(as_json, **values)
    run = run_in_engine if in_engine else run_at_server
    target, points = run(schedule, values)
    described = {
        name: values[name]
        for name in ("prompts", "outputs", "shared_prefix", "burstiness", "max_concurrency")
    }
    is_interrupted = len(points) < len(schedule.rates)
    return report.make_report(target, described, schedule.seed, points, is_interrupted)


def make_schedule(
    quiet, rates, seed, num_warm_up, max_concurrency, goodput, num_requests, seconds, **values
):
    from glm_engine.load import arrivals, figures, runs

    if num_requests and seconds:
        raise BadInputError("--requests and --seconds exclude each other")
    limits = {} if goodput is None else figures.parse_goodput(goodput)
    if not values["is_streaming"] and limits.keys() - {"e2e"}:
        raise BadInputError("--no-stream has neither TTFT nor TPOT: --goodput takes e2e alone")
    return runs.Schedule(
        workload=make_workload(num_requests, seconds, **values),
        rates=tuple(arrivals.parse_rates(rates, bool(seconds))),
        seed=secrets.randbits(32) if seed is None else seed,
        num_warm_up=num_warm_up,
        max_concurrency=max_concurrency,
        limits=limits,
        quiet=quiet,
    )


def make_workload(
    num_requests, seconds, prompts, outputs, shared_prefix, burstiness, **_of_the_target
):
    from glm_engine.load.distributions import parse_lengths
    from glm_engine.load.workload import Workload, read_prompts

    path = prompts.removeprefix(FILE) if prompts.startswith(FILE) else None
    return Workload(
        lengths=None if path else parse_lengths(prompts),
        outputs=parse_lengths(outputs),
        shared_prefix=shared_prefix,
        burstiness=burstiness,
        num_requests=num_requests or (None if seconds else DEFAULT_REQUESTS),
        seconds=seconds,
        prompts=read_prompts(path) if path else (),
    )


def run_at_server(schedule, values):
    """Ask the server what it serves, then run every rate against it."""
    from glm_engine.load import gauges, runs, target
    from glm_engine.load.connection import KEY_VARIABLE, parse_address
    from glm_engine.server.lifecycle import raise_file_limit

    raise_file_limit()
    address = parse_address(values["url"], variable(KEY_VARIABLE))
    names = ("endpoint", "is_streaming", "temperature", "ignore_eos")
    model = target.chosen_model(address, values["served_model"])
    chosen = target.Target(address, model, **{name: values[name] for name in names})
    vocabulary = None
    if not schedule.workload.prompts:
        vocabulary = target.served_vocabulary(address, model, chosen.endpoint)
    described = {"url": address.url, "model": model, "endpoint": chosen.endpoint}
    limits = (values["timeout"], values["num_workers"])
    with gauges.Watch(address) as watch:
        run = runs.against_server(chosen, schedule, *limits, watch)
        return described, runs.run_schedule(schedule, vocabulary, run)


def run_in_engine(schedule, values):
    """Load an engine with the options that a server would have, then run every rate in it."""
    from glm_engine.commands.serve import DEFAULT_MAX_QUEUE, chosen_engine
    from glm_engine.hub.names import tokenizer_of
    from glm_engine.load import in_engine, runs
    from glm_engine.loading import load_engine
    from glm_engine.tokenizer import GlmTokenizer

    if values["endpoint"] != "completions":
        raise BadInputError("--engine has no chat endpoint: it takes completions")
    names = ("model_dir", "synthetic", "num_layers", "engine_values")
    source, chosen = chosen_engine(*(values[name] for name in names), DEFAULT_MAX_QUEUE)
    folder = options.CAPITALS if values["synthetic"] else source
    tokenizer = GlmTokenizer(tokenizer_of(values["tokenizer_dir"], folder))
    engine, _ = load_engine(chosen, quiet=schedule.quiet)
    with engine:
        vocabulary = in_engine.engine_vocabulary(tokenizer)
        kinds = (values["temperature"], values["ignore_eos"])
        run = runs.inside_engine(engine, tokenizer, schedule, *kinds)
        described = {"url": "this process", "model": str(source), "endpoint": "engine"}
        described["device"] = engine.info()["device"]
        return described, runs.run_schedule(schedule, vocabulary, run)
