"""`glm load`: sends requests at given rates to a server, or to an engine in this process."""

import secrets
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.client_key import address_of
from glm_engine.cli.option_types import NOT_NEGATIVE, POSITIVE, Whole
from glm_engine.core.console import print_json
from glm_engine.core.errors import BadInputError, ExitCode
from glm_engine.core.layout import CAPITALS
from glm_engine.load.records import LOST

if TYPE_CHECKING:
    from glm_engine.load.fields import Point, Report, TargetFields, WorkloadFields
    from glm_engine.load.runs import Schedule
    from glm_engine.load.workload import Workload

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_REQUESTS = 100
FILE = "file:"
ENGINE_OPTIONS = (
    *options.ENGINE,
    "tokenizer_dir",
    "synthetic",
    "num_layers",
    "acceptance_length",
    "model_dir",
)
LONGEST_TIMEOUT = 10_000_000.0
LEAST_BURSTINESS, MOST_BURSTINESS = 0.001, 1_000_000.0


@options.command("load")
@click.argument("url", metavar="[URL]", default=DEFAULT_URL)
@click.option(
    "--rate",
    "--request-rate",
    "rates",
    default="inf",
    help="Request rates to test, in requests per second, comma-separated, e.g. 1,2,4,inf; inf sends"
    " all requests at once.",
)
@click.option(
    "--requests",
    "--num-prompts",
    "num_requests",
    type=POSITIVE,
    show_default=str(DEFAULT_REQUESTS),
    help="Number of requests to send at each rate.",
)
@click.option(
    "--seconds",
    type=options.Finite(min=0, min_open=True),
    help="Send requests for this many seconds at each rate, instead of --requests.",
)
@click.option(
    "--max-concurrency",
    type=POSITIVE,
    show_default="unlimited",
    help="Maximum number of requests in flight.",
)
@click.option(
    "--prompts",
    "--random-input-len",
    default="uniform:32:512",
    help="Prompt lengths in tokens: N, uniform:MIN:MAX or lognormal:MEDIAN:SIGMA[:MAX];"
    " file:PATH reads the prompts from a JSONL file.",
)
@click.option(
    "--outputs",
    "--random-output-len",
    default="128",
    help="Output lengths in tokens, in the same formats as --prompts.",
)
@click.option(
    "--shared-prefix",
    type=NOT_NEGATIVE,
    default=0,
    help="Length in tokens of a prefix shared by all prompts.",
)
@click.option(
    "--burstiness",
    type=options.Finite(LEAST_BURSTINESS, MOST_BURSTINESS),
    default=1.0,
    help="Burstiness of the arrivals (shape of a gamma distribution): 1 gives a Poisson process;"
    " lower values give burstier traffic.",
)
@click.option(
    "--endpoint",
    type=click.Choice(["completions", "chat"]),
    default="completions",
    help="API endpoint to send requests to.",
)
@click.option(
    "--stream/--no-stream",
    "is_streaming",
    default=True,
    help="Stream answers; without streaming, the time to first token is not measured.",
)
@click.option(
    "--temperature",
    type=options.Finite(min=0),
    default=0.0,
    help=options.SAMPLING_HELP["temperature"],
)
@click.option(
    "--ignore-eos/--stop-at-eos",
    default=True,
    help="Generate exactly the requested output length, or let the model stop earlier.",
)
@click.option(
    "--goodput",
    help="Latency limits that a request must meet to count as good, e.g. ttft:200ms,tpot:50ms.",
)
@click.option(
    "--warm-up",
    "--num-warmups",
    "num_warm_up",
    type=NOT_NEGATIVE,
    default=4,
    help="Number of requests to send before measuring.",
)
@click.option(
    "--timeout",
    type=options.Finite(min=0, min_open=True, max=LONGEST_TIMEOUT),
    default=600.0,
    help="Give up on a request after this many seconds.",
)
@click.option(
    "--workers",
    "num_workers",
    type=Whole(1, 64),
    default=1,
    help="Number of client processes to send the requests from.",
)
@click.option(
    "--served-model-name",
    "served_model",
    show_default="the first model that the server lists",
    help="Model name to send in requests.",
)
@options.KEY_FILE
@click.option("--base-url", help="Server to load-test; the same as the URL argument.")
@click.option(
    "--seed",
    type=options.SEED,
    show_default="random",
    help="Seed for the prompts and arrival times.",
)
@click.option("--output", type=click.Path(), help="Write the report to this JSON file.")
@click.option("--plot", type=click.Path(), help="Plot the results to PATH.png and PATH.svg.")
@click.option("--show", "shown", type=click.Path(), help="Print a report saved with --output.")
@click.option(
    "--engine",
    "in_engine",
    is_flag=True,
    help="Load-test an engine in this process instead of a server.",
)
@options.model_options
@options.TOKENIZER
@options.engine_options
@options.JSON
def command(
    shown: str | None, output: str | None, plot: str | None, as_json: bool, **values: Any
) -> ExitCode:
    """Load-test the server at URL: send requests at given rates and measure throughput and latency.

    Requests are sent on schedule, without waiting for earlier ones to finish. With --engine, they
    go to an engine in this process instead of a server; the model and engine options below
    configure it.
    """
    from glm_engine.bench.plots import prepare_plot
    from glm_engine.core.files import prepare_target, write_report
    from glm_engine.load import charts, report

    if output is not None:
        prepare_target(output)
    if plot is not None:
        prepare_plot(plot)
    made = measure(as_json, **values) if shown is None else report.read_report(shown)
    try:
        print_json(made) if as_json else report.print_report(made)
        sys.stdout.flush()
    finally:
        if output is not None:
            write_report(made, output)
        if plot is not None:
            charts.plot_report(made, plot)
    return exit_code(made)


def exit_code(report: "Report") -> ExitCode:
    """Return 130 after Ctrl-C, 1 if no request completed at a rate or a client process died."""
    if report["is_interrupted"]:
        return ExitCode.INTERRUPTED
    points = report["points"]
    is_done = all(point["num_completed"] and LOST not in point["outcomes"] for point in points)
    return ExitCode.OK if is_done else ExitCode.FAILED


def measure(as_json: bool, in_engine: bool, base_url: str | None, **values: Any) -> "Report":
    from glm_engine.load import report

    if base_url is not None:
        options.refuse_stated("--base-url is given; remove", "url")
        values["url"] = base_url
    if not in_engine:
        options.refuse_stated("only allowed with --engine", *ENGINE_OPTIONS)
    else:
        options.refuse_stated(
            "--engine runs without a server; remove", "url", "base_url", "key_file"
        )
    schedule = make_schedule(as_json, **values)
    run = run_in_engine if in_engine else run_at_server
    target, points = run(schedule, values)
    described: WorkloadFields = {
        "prompts": values["prompts"],
        "outputs": values["outputs"],
        "shared_prefix": values["shared_prefix"],
        "burstiness": values["burstiness"],
        "max_concurrency": values["max_concurrency"],
    }
    is_interrupted = len(points) < len(schedule.rates)
    return report.make_report(target, described, schedule.seed, points, is_interrupted)


def make_schedule(
    quiet: bool,
    rates: str,
    seed: int | None,
    num_warm_up: int,
    max_concurrency: int | None,
    goodput: str | None,
    num_requests: int | None,
    seconds: float | None,
    **values: Any,
) -> "Schedule":
    from glm_engine.load import arrivals, figures, runs

    if num_requests and seconds:
        raise BadInputError("--requests and --seconds cannot be used together")
    limits = {} if goodput is None else figures.parse_goodput(goodput)
    if not values["is_streaming"] and limits.keys() - {"e2e"}:
        raise BadInputError("--goodput: ttft and tpot need --stream; with --no-stream use e2e")
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
    num_requests: int | None,
    seconds: float | None,
    prompts: str,
    outputs: str,
    shared_prefix: int,
    burstiness: float,
    **_of_the_target: Any,
) -> "Workload":
    from glm_engine.load.distributions import parse_lengths
    from glm_engine.load.workload import Workload, read_prompts

    path = prompts.removeprefix(FILE) if prompts.startswith(FILE) else None
    return Workload(
        lengths=None if path else parse_lengths(prompts, "--prompts"),
        outputs=parse_lengths(outputs, "--outputs"),
        shared_prefix=shared_prefix,
        burstiness=burstiness,
        num_requests=num_requests or (None if seconds else DEFAULT_REQUESTS),
        seconds=seconds,
        prompts=read_prompts(path) if path else (),
    )


def run_at_server(
    schedule: "Schedule", values: Mapping[str, Any]
) -> tuple["TargetFields", list["Point"]]:
    """Ask the server for its models, then send the requests of every rate to it."""
    from glm_engine.load import occupancy, runs, target
    from glm_engine.server.http.lifecycle import raise_file_limit

    raise_file_limit()
    address = address_of(values["url"], values["key_file"])
    names = ("endpoint", "is_streaming", "temperature", "ignore_eos")
    model = target.chosen_model(address, values["served_model"])
    chosen = target.Target(address, model, **{name: values[name] for name in names})
    vocabulary = None
    if not schedule.workload.prompts:
        vocabulary = target.served_vocabulary(address, model, chosen.endpoint)
    described: TargetFields = {"url": address.url, "model": model, "endpoint": chosen.endpoint}
    limits = (values["timeout"], values["num_workers"])
    with occupancy.Watch(address) as watch:
        run = runs.against_server(chosen, schedule, *limits, watch)
        return described, runs.run_schedule(schedule, vocabulary, run)


def run_in_engine(
    schedule: "Schedule", values: Mapping[str, Any]
) -> tuple["TargetFields", list["Point"]]:
    """Load an engine with a server's options, then send the requests of every rate to it."""
    from glm_engine.commands.serve import chosen_engine
    from glm_engine.core.loading import load_engine
    from glm_engine.hub.names import tokenizer_of
    from glm_engine.load import runs
    from glm_engine.load.workload import TEXT, id_vocabulary
    from glm_engine.text.tokenizer import GlmTokenizer

    if values["endpoint"] != "completions":
        raise BadInputError("--engine supports only --endpoint completions")
    names = ("model_dir", "synthetic", "engine_values", "num_layers", "acceptance_length")
    source, chosen = chosen_engine(**{name: values[name] for name in names})
    folder = str(CAPITALS) if values["synthetic"] else source
    tokenizer = GlmTokenizer(tokenizer_of(values["tokenizer_dir"], folder))
    engine, _ = load_engine(chosen, quiet=schedule.quiet)
    with engine:
        vocabulary = id_vocabulary(tokenizer.encode(TEXT, add_special_tokens=False))
        kinds = (values["temperature"], values["ignore_eos"])
        run = runs.inside_engine(engine, tokenizer, schedule, *kinds)
        described: TargetFields = {
            "url": "this process",
            "model": str(source),
            "endpoint": "engine",
        }
        described["device"] = engine.info()["device"]
        return described, runs.run_schedule(schedule, vocabulary, run)
