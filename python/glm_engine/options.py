"""The options that commands share, as tables, and the dataclasses made of them."""

import functools
import math
import re

import click

from glm_engine.layout import CAPITALS
from glm_engine.values import refuse_empty, variable

DEVICES = ("auto", "cpu", "cuda")
LAYOUTS = ("tensor_parallel", "expert_parallel")
KV_DTYPES = {"float32": 0, "bfloat16": 1, "fp8_e4m3": 2}
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
MOST, MOST_BYTES = 2**31 - 1, 2**63 - 1
MOST_CHARACTERS = 40
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Whole(click.IntRange):
    """A whole number of a range that is bounded at both ends."""

    def __init__(self, least, most=MOST):
        super().__init__(least, most)

    def convert(self, value, param, ctx):
        refuse_long(self, value, f"from {self.min} to {self.max}", param, ctx)
        return super().convert(value, param, ctx)


def refuse_long(kind, value, known, param, ctx):
    """Refuse what no number can be by its length, so that nobody reads all its digits."""
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        kind.fail(f"a number of {len(value)} characters is not {known}", param, ctx)


POSITIVE = Whole(1)
NOT_NEGATIVE = Whole(0)
SEED = Whole(0, 2**64 - 1)


class Command(click.Command):
    """A command none of whose options, arguments and variables may be stated empty."""

    def parse_args(self, ctx, args):
        stated, _, _ = self.make_parser(ctx).parse_args(list(args))
        for param in self.params:
            value = stated.get(param.name)
            for one in value if isinstance(value, list | tuple) else (value,):
                refuse_empty(stated_name(param), one)
            if param.envvar:
                variable(param.envvar)
        return super().parse_args(ctx, args)


def stated_name(param):
    """Return how users write an option, or how the help calls an argument."""
    is_option = isinstance(param, click.Option)
    return "/".join(param.opts) if is_option else param.human_readable_name.strip("[]")


command = functools.partial(click.command, cls=Command)


class ByteSize(click.ParamType):
    """A number of bytes: 1048576, 512MB, 80GiB."""

    name = "size"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        refuse_long(self, value, f"from 0 to {MOST_BYTES} bytes", param, ctx)
        match = SIZE.fullmatch(value.strip())
        if not match:
            self.fail(f"{value!r} is not a size such as 512MB or 80GiB", param, ctx)
        number, unit, binary = match.groups()
        size = int(float(number) * (1024 if binary else 1000) ** POWERS[unit.lower()])
        if size > MOST_BYTES:
            self.fail(f"{value!r} is not from 0 to {MOST_BYTES} bytes", param, ctx)
        return size


class Finite(click.FloatRange):
    """A number of a range, and neither nan nor inf."""

    def convert(self, value, param, ctx):
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


MODEL = click.option(
    "--model",
    "model_dir",
    envvar="GLM_MODEL",
    default=str(CAPITALS),
    show_default="GLM_MODEL, else checkpoints/capitals",
    help="Folder of the checkpoint.",
)
MODEL_ARGUMENT = click.argument(
    "model_dir", metavar="[MODEL]", default=str(CAPITALS), envvar="GLM_MODEL"
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")

ENGINE = (
    click.option(
        "--device",
        type=click.Choice(DEVICES),
        default="auto",
        show_default=True,
        help="auto takes CUDA where an NVIDIA GPU is, else the CPU.",
    ),
    click.option("--world-size", type=POSITIVE, help="Ranks to split the model over."),
    click.option("--expert-layout", type=click.Choice(LAYOUTS), help="How experts are split."),
    click.option(
        "--threads", "num_threads", type=NOT_NEGATIVE, help="CPU threads in all (0: all cores)."
    ),
    click.option("--max-batch", type=POSITIVE, help="Requests in one step at most."),
    click.option("--max-seq", type=POSITIVE, help="Tokens of one sequence at most."),
    click.option("--page-size", type=POSITIVE, help="Tokens in one KV page."),
    click.option(
        "--num-pages", type=NOT_NEGATIVE, help="KV pages (0: as many as fit and are needed)."
    ),
    click.option("--max-step-tokens", type=POSITIVE, help="Tokens in one step at most."),
    click.option(
        "--prefill-chunk", type=NOT_NEGATIVE, help="Prompt tokens of one sequence in one step."
    ),
    click.option(
        "--kv-dtype",
        type=click.Choice(list(KV_DTYPES)),
        help="Type of cached K and V (CPU: float32; CUDA: bfloat16 or fp8_e4m3)"
        " [default: the first that the device keeps].",
    ),
    click.option(
        "--memory-limit",
        "memory_limit_bytes",
        type=ByteSize(),
        help="Bytes a device may use, such as 80GB (CPU: all ranks together).",
    ),
    click.option("--prefix-cache/--no-prefix-cache", default=None, help="Reuse equal prefixes."),
    click.option(
        "--graphs/--no-graphs",
        default=None,
        help="Replay captured decode steps [default: where the device can].",
    ),
    click.option(
        "--plan-ahead/--no-plan-ahead",
        default=None,
        help="Plan a step while one runs [default: where the device works on its own].",
    ),
    click.option(
        "--check-operations",
        is_flag=True,
        default=None,
        help="Wait for each operation, so that a fault names it (slow).",
    ),
)

SAMPLING = (
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0: greedy."),
    click.option("--top-p", type=float, default=1.0, show_default=True),
    click.option("--top-k", type=NOT_NEGATIVE, default=0, show_default=True, help="0: all."),
    click.option("--min-p", type=float, default=0.0, show_default=True),
    click.option("--repetition-penalty", type=float, default=1.0, show_default=True),
    click.option("--frequency-penalty", type=float, default=0.0, show_default=True),
    click.option("--presence-penalty", type=float, default=0.0, show_default=True),
    click.option(
        "--logprobs", "num_logprobs", type=Whole(-1, 20), default=-1, help="Best tokens to list."
    ),
    click.option("--seed", type=SEED, default=0, show_default=True),
)
ENGINE_NAMES = (
    "device",
    "world_size",
    "expert_layout",
    "num_threads",
    "max_batch",
    "max_seq",
    "page_size",
    "num_pages",
    "max_step_tokens",
    "prefill_chunk",
    "kv_dtype",
    "memory_limit_bytes",
    "prefix_cache",
    "graphs",
    "plan_ahead",
    "check_operations",
)
SAMPLING_NAMES = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "num_logprobs",
    "seed",
)


def gathered(options, names, keyword, make):
    """Make a decorator that adds options and hands them over as one argument."""

    def decorate(function):
        @functools.wraps(function)
        def run(**values):
            values[keyword] = make({name: values.pop(name) for name in names})
            return function(**values)

        for option in reversed(options):
            run = option(run)
        return run

    return decorate


def make_sampling(values):
    from glm_engine.requests import Sampling

    return Sampling(**values)


def make_engine_values(values):
    if values["kv_dtype"] is not None:
        values["kv_dtype"] = KV_DTYPES[values["kv_dtype"]]
    return values


engine_options = gathered(ENGINE, ENGINE_NAMES, "engine_values", make_engine_values)
sampling_options = gathered(SAMPLING, SAMPLING_NAMES, "sampling", make_sampling)


def make_engine_options(model_dir, engine_values, **defaults):
    """Return EngineOptions: the user's values over the command's own defaults."""
    from glm_engine.requests import EngineOptions

    chosen = {name: value for name, value in engine_values.items() if value is not None}
    return EngineOptions(model_dir=model_dir, **{**defaults, **chosen})
