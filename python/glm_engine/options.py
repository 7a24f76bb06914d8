"""The options that commands share, as tables, and the dataclasses made of them."""

import functools
import math
import re
from dataclasses import dataclass
from fractions import Fraction

import click

from glm_engine.bench.costs import SYNTHETIC
from glm_engine.errors import BadInputError
from glm_engine.layout import CAPITALS
from glm_engine.option_sources import Command, Option, stated_name

DEVICES = ("auto", "cpu", "cuda")
LAYOUTS = ("tensor_parallel", "expert_parallel")
KV_DTYPES = {"float32": 0, "bfloat16": 1, "fp8_e4m3": 2}
SHARE = re.compile(r"[01]?\.\d{1,9}")
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
command = functools.partial(click.command, cls=Command)


class ByteSize(click.ParamType):
    """A number of bytes: 1048576, 512MB, 80GiB."""

    name = "size"
    known = "a size such as 512MB or 80GiB"

    def convert(self, value, param, ctx):
        if isinstance(value, int):
            return value
        refuse_long(self, value, f"from 0 to {MOST_BYTES} bytes", param, ctx)
        match = SIZE.fullmatch(value.strip())
        if not match:
            self.fail(f"{value!r} is not {self.known}", param, ctx)
        number, unit, binary = match.groups()
        size = Fraction(number) * (1024 if binary else 1000) ** POWERS[unit.lower()]
        if size > MOST_BYTES:
            self.fail(f"{value!r} is not from 0 to {MOST_BYTES} bytes", param, ctx)
        if 0 < size < 1:
            self.fail(f"{value!r} is less than a byte; expected {self.known}", param, ctx)
        return int(size)


class PositiveSize(ByteSize):
    """A number of bytes above 0."""

    def convert(self, value, param, ctx):
        size = super().convert(value, param, ctx)
        if size == 0:
            self.fail(f"{value!r} leaves nothing; expected {self.known}", param, ctx)
        return size


@dataclass(frozen=True)
class FreeShare:
    """Whole hundredths of the memory that a device has free."""

    percent: int


class MemoryLimit(PositiveSize):
    """A number of bytes above 0, or a share of what is free: 0.9."""

    name = "size|share"
    known = "a size such as 80GB or 80GiB, or a share of free memory such as 0.9"

    def convert(self, value, param, ctx):
        if not isinstance(value, str) or not SHARE.fullmatch(value.strip()):
            return super().convert(value, param, ctx)
        percent = 100 * Fraction(value.strip())
        if percent.denominator != 1 or not 1 <= percent <= 100:
            self.fail(f"{value!r} is not a share from 0.01 to 1.0 in hundredths", param, ctx)
        return FreeShare(int(percent))


class WorldSize(Whole):
    """A number of ranks, or auto, which is the engine's 0."""

    def convert(self, value, param, ctx):
        return 0 if value == "auto" else super().convert(value, param, ctx)


class Finite(click.FloatRange):
    """A number of a range, and neither nan nor inf."""

    def convert(self, value, param, ctx):
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def complete_path(_ctx, _param, incomplete):
    """Let the shell complete a path."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


class Checkpoint(click.ParamType):
    """A checkpoint's folder, or the name of a model that `glm pull` brought."""

    name = "checkpoint"

    def convert(self, value, param, ctx):
        del param, ctx
        from glm_engine.hub.names import find_checkpoint

        return find_checkpoint(value)

    def shell_complete(self, ctx, param, incomplete):
        return complete_path(ctx, param, incomplete)


class ModelArgument(click.Argument):
    """MODEL, which states the option `--model` without its name."""

    def __init__(self, names):
        (self.target,) = names
        super().__init__(
            [f"{self.target}_argument"],
            metavar="[MODEL]",
            required=False,
            expose_value=False,
            is_eager=True,
            shell_complete=complete_path,
        )

    def handle_parse_result(self, ctx, opts, args):
        value, option = opts.get(self.name), opts.get(self.target)
        if isinstance(value, str):
            if isinstance(option, str) and option != value:
                text = f"MODEL is {value!r} but --model is {option!r}: state the model once"
                raise click.UsageError(text, ctx)
            opts[self.target] = value
        return value, args


def with_argument(option, target="model_dir"):
    """Make a decorator that adds MODEL and the option that MODEL states."""
    argument = click.argument(target, cls=ModelArgument)
    return lambda function: argument(option(function))


def model_option_of(option, **attributes):
    """Return the option that names a checkpoint, made by `option`."""
    return option(
        "--model",
        "-m",
        "model_dir",
        envvar="GLM_MODEL",
        show_default="checkpoints/capitals",
        help="Folder of the checkpoint, or ORG/NAME of a model that `glm pull` brought.",
        **attributes,
    )


MODEL_OPTION = model_option_of(click.option, type=Checkpoint(), default=str(CAPITALS))
MODEL = with_argument(MODEL_OPTION)
MODEL_OR_NAME = with_argument(
    model_option_of(click.option, default=str(CAPITALS), shell_complete=complete_path)
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def grouped(group):
    """Return a `click.option` whose options the help lists under a heading."""
    return functools.partial(click.option, cls=Option, group=group)


model_option = grouped("Model")
TOKENIZER = model_option(
    "--tokenizer",
    "tokenizer_dir",
    type=Checkpoint(),
    show_default="the checkpoint's",
    help="Folder of the tokenizer and chat template, or ORG/NAME.",
)
MODEL_OR_NONE = model_option_of(model_option, shell_complete=complete_path)
SYNTHETIC_OPTIONS = (
    model_option(
        "--synthetic",
        help=f"Random weights in the shapes of {', '.join(SYNTHETIC)} or a config.json.",
    ),
    model_option(
        "--layers", "num_layers", type=POSITIVE, show_default="all", help="Cut a synthetic model."
    ),
)
engine_option = functools.partial(functools.partial, grouped("Engine"))
sampling_option = functools.partial(functools.partial, grouped("Sampling"))
ENGINE = {
    "device": engine_option(
        "--device",
        type=click.Choice(DEVICES),
        default="auto",
        help="auto takes CUDA where an NVIDIA GPU is, else the CPU.",
    ),
    "world_size": engine_option(
        "--world-size",
        type=WorldSize(1),
        metavar="N|auto",
        show_default="auto, the least of 1, 2, 4 and 8 GPUs that holds the model; on the CPU 1",
        help="Ranks to split the model over.",
    ),
    "expert_layout": engine_option(
        "--expert-layout",
        type=click.Choice(LAYOUTS),
        show_default="expert_parallel where the ranks divide the experts, else tensor_parallel",
        help="How experts are split.",
    ),
    "num_threads": engine_option(
        "--threads",
        "num_threads",
        type=NOT_NEGATIVE,
        show_default="0",
        help="CPU threads in all; 0: all cores.",
    ),
    "max_batch": engine_option(
        "--max-batch",
        type=POSITIVE,
        show_default="256 on a GPU, 64 on the CPU; less where the memory holds no more",
        help="Requests in one step at most.",
    ),
    "max_seq": engine_option(
        "--max-seq",
        type=POSITIVE,
        show_default="the model's own positions; less where the memory holds no more",
        help="Tokens of one sequence at most.",
    ),
    "page_size": engine_option(
        "--page-size", type=POSITIVE, show_default="16", help="Tokens in one KV page."
    ),
    "num_pages": engine_option(
        "--num-pages",
        type=NOT_NEGATIVE,
        show_default="0",
        help="KV pages; 0: as many as --max-batch sequences need, or as fit: a GPU's memory,"
        " --memory-limit, or a quarter of what the CPU has free.",
    ),
    "max_step_tokens": engine_option(
        "--max-step-tokens",
        type=POSITIVE,
        show_default="8192 on a GPU, less where its memory is short; 512 on the CPU",
        help="Tokens in one step at most; left out, twice --max-batch at least.",
    ),
    "prefill_chunk": engine_option(
        "--prefill-chunk",
        type=NOT_NEGATIVE,
        show_default="0",
        help="Prompt tokens of one sequence in one step; 0: as --max-step-tokens.",
    ),
    "step_budget_ms": engine_option(
        "--step-budget",
        "step_budget_ms",
        type=NOT_NEGATIVE,
        metavar="MS",
        show_default="80 on a GPU, 0 on the CPU",
        help="Milliseconds that a step with pieces of prompts may take; 0: as --max-step-tokens"
        " allows, for the most tokens a second.",
    ),
    "kv_dtype": engine_option(
        "--kv-dtype",
        type=click.Choice(list(KV_DTYPES)),
        show_default="the first that the device keeps",
        help="Type of cached K and V (CPU: float32; CUDA: bfloat16 or fp8_e4m3).",
    ),
    "memory_limit": engine_option(
        "--memory-limit",
        "memory_limit",
        type=MemoryLimit(),
        show_default="of what is free, 0.97 on a GPU and 0.9 on the CPU",
        help="What a device may use: 80GB, 80GiB, or 0.9 of its free memory (CPU: all ranks).",
    ),
    "prefix_cache": engine_option(
        "--prefix-cache/--no-prefix-cache",
        default=None,
        show_default="prefix-cache",
        help="Reuse equal prefixes.",
    ),
    "graphs": engine_option(
        "--graphs/--no-graphs",
        default=None,
        show_default="graphs where the device can",
        help="Replay captured decode steps.",
    ),
    "plan_ahead": engine_option(
        "--plan-ahead/--no-plan-ahead",
        default=None,
        show_default="plan-ahead where the device works on its own",
        help="Plan a step while one runs.",
    ),
    "check_operations": engine_option(
        "--check-operations",
        is_flag=True,
        default=None,
        help="Wait for each operation, so that a fault names it (slow).",
    ),
}
SAMPLING = {
    "temperature": sampling_option("--temperature", type=float, default=0.0, help="0: greedy."),
    "top_p": sampling_option("--top-p", type=float, default=1.0),
    "top_k": sampling_option("--top-k", type=NOT_NEGATIVE, default=0, help="0: all."),
    "min_p": sampling_option("--min-p", type=float, default=0.0),
    "repetition_penalty": sampling_option("--repetition-penalty", type=float, default=1.0),
    "frequency_penalty": sampling_option("--frequency-penalty", type=float, default=0.0),
    "presence_penalty": sampling_option("--presence-penalty", type=float, default=0.0),
    "num_logprobs": sampling_option(
        "--logprobs",
        "num_logprobs",
        type=Whole(-1, 20),
        default=-1,
        help="Best tokens to list; -1: no log-probabilities.",
    ),
    "seed": sampling_option("--seed", type=SEED, default=0),
}


def gathered(options, keyword, make, **defaults):
    """Make a decorator that adds options and hands them over as one argument.

    `defaults` are a command's own: a value, or a text that says how the command finds one.
    """

    def decorate(function):
        @functools.wraps(function)
        def run(**values):
            values[keyword] = make({name: values.pop(name) for name in options})
            return function(**values)

        for name, option in reversed(options.items()):
            run = option(**own_default(defaults.get(name)))(run)
        return run

    return decorate


def own_default(default):
    if default is None:
        return {}
    is_said = isinstance(default, str)
    return {"show_default": default} if is_said else {"default": default, "show_default": True}


def make_sampling(values):
    from glm_engine.requests import Sampling

    return Sampling(**values)


def make_engine_values(values):
    if values["kv_dtype"] is not None:
        values["kv_dtype"] = KV_DTYPES[values["kv_dtype"]]
    limit = values.pop("memory_limit")
    is_share = isinstance(limit, FreeShare)
    values["memory_limit_bytes"] = None if is_share else limit
    values["memory_limit_percent"] = limit.percent if is_share else None
    return values


engine_options_with = functools.partial(gathered, ENGINE, "engine_values", make_engine_values)
engine_options = engine_options_with()
sampling_options = gathered(SAMPLING, "sampling", make_sampling)
drawing_options = gathered(
    {name: SAMPLING[name] for name in SAMPLING if name not in ("num_logprobs", "seed")},
    "sampling",
    make_sampling,
)


def model_options(function):
    """Add the options that name a checkpoint or a model of random weights."""
    for option in reversed((MODEL_OR_NONE, *SYNTHETIC_OPTIONS)):
        function = option(function)
    return function


model_or_synthetic = with_argument(model_options)


def make_engine_options(model_dir, engine_values, **defaults):
    """Return EngineOptions: the user's values over the command's own defaults."""
    from glm_engine.requests import EngineOptions

    chosen = {name: value for name, value in engine_values.items() if value is not None}
    return EngineOptions(model_dir=model_dir, **{**defaults, **chosen})


def is_stated(name):
    """Say whether the command line gives a value, rather than a variable, a file or a default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def refuse_stated(reason, *names):
    """Raise BadInputError where the command line states one of these: it would be for nothing."""
    params = click.get_current_context().command.params
    stated = [stated_name(one) for one in params if one.name in names and is_stated(one.name)]
    if stated:
        raise BadInputError(f"{reason}: {', '.join(stated)}")
