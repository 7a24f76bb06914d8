"""The options that commands share, as tables, and the dataclasses made of them."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from glm_engine.bench.costs import SYNTHETIC
from glm_engine.cli.aliases import alias_typed
from glm_engine.cli.help_pages import Option
from glm_engine.cli.no_download import Command
from glm_engine.cli.option_sources import stated_name
from glm_engine.cli.option_types import (
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    ByteSize,
    Checkpoint,
    Finite,
    FreeShare,
    KvDtype,
    MemoryLimit,
    PositiveSize,
    Speculate,
    Whole,
    WorldSize,
    complete_path,
)
from glm_engine.cli.peer_values import ShareOfAll
from glm_engine.core.abi import MAX_DRAFT_TOKENS
from glm_engine.core.acceptance import Speculation
from glm_engine.core.console import FEWEST_GPUS, tell
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import CAPITALS

if TYPE_CHECKING:
    from glm_engine.core.requests import EngineOptions, Sampling

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
MakeOption = Callable[..., Decorator]
__all__ = ("SEED", "ByteSize", "Finite", "PositiveSize")
DEVICES = ("auto", "cpu", "cuda", "futhark")
LAYOUTS = ("tensor_parallel", "expert_parallel")
KV_DTYPES = {"float32": 0, "bfloat16": 1, "fp8_e4m3": 2}
command = functools.partial(click.command, cls=Command)


class ModelArgument(click.Argument):
    """MODEL, which states the option `--model` without its name."""

    def __init__(self, names: Sequence[str]) -> None:
        (self.target,) = names
        super().__init__(
            [f"{self.target}_argument"],
            metavar="[MODEL]",
            required=False,
            expose_value=False,
            is_eager=True,
            shell_complete=complete_path,
        )

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        value, option = opts.get(self.name), opts.get(self.target)
        if isinstance(value, str):
            if isinstance(option, str) and option != value:
                text = f"MODEL is {value!r} but --model is {option!r}; give only one"
                raise click.UsageError(text, ctx)
            cast("dict[str, Any]", opts)[self.target] = value
        return value, args


def with_argument(option: Decorator, target: str = "model_dir") -> Decorator:
    """Make a decorator that adds MODEL and the option that MODEL states."""
    argument = click.argument(target, cls=ModelArgument)
    return lambda function: argument(option(function))


def model_option_of(option: MakeOption, **attributes: Any) -> Decorator:
    """Return the option that names a checkpoint, made by `option`."""
    return option(
        "--model",
        "-m",
        "model_dir",
        metavar="MODEL",
        envvar="GLM_MODEL",
        show_default="capitals, a small built-in model",
        help="Checkpoint folder, or ORG/NAME of a model on the Hugging Face hub.",
        **attributes,
    )


MODEL_OPTION = model_option_of(click.option, type=Checkpoint(), default=str(CAPITALS))
MODEL = with_argument(MODEL_OPTION)
MODEL_OR_NAME = with_argument(
    model_option_of(click.option, default=str(CAPITALS), shell_complete=complete_path)
)
KEY_FILE = click.option(
    "--api-key-file",
    "key_file",
    type=click.Path(),
    show_default="the key in GLM_API_KEY, if set",
    help="File that contains the server's API key.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def grouped(group: str, topic: str | None = None) -> MakeOption:
    """Return a `click.option` whose options the help lists under a heading.

    Where many commands take them, they stand on the page of a `topic`.
    """
    return functools.partial(click.option, cls=Option, group=group, topic=topic)


model_option = grouped("Model")
TOKENIZER = model_option(
    "--tokenizer",
    "tokenizer_dir",
    type=Checkpoint(),
    show_default="the model's",
    help="Folder with the tokenizer and chat template, or ORG/NAME.",
)
MODEL_OR_NONE = model_option_of(model_option, shell_complete=complete_path)
SYNTHETIC_MODEL = model_option(
    "--synthetic",
    metavar="NAME",
    help=f"Use random weights with the shapes of {', '.join(SYNTHETIC)} or a config.json.",
)
SYNTHETIC_OPTIONS = (
    SYNTHETIC_MODEL,
    model_option(
        "--layers",
        "num_layers",
        type=POSITIVE,
        show_default="all",
        help="Keep only this many layers of a synthetic model.",
    ),
    model_option(
        "--acceptance-length",
        type=Finite(1, MAX_DRAFT_TOKENS + 1),
        show_default="off",
        help="Accept draft tokens at random, so that a forward pass gives a request this many"
        " tokens on average. This changes the text and needs --synthetic and --speculate.",
    ),
)
engine_option = functools.partial(functools.partial, grouped("Engine", "engine"))
sampling_option = functools.partial(functools.partial, grouped("Sampling", "sampling"))
ENGINE = {
    "device": engine_option(
        "--device",
        type=click.Choice(DEVICES),
        default="auto",
        help="Device to run on; auto uses the GPU if there is one, otherwise the CPU.",
    ),
    "world_size": engine_option(
        "--world-size",
        type=WorldSize(0),
        metavar="N|auto",
        show_default=f"auto: {FEWEST_GPUS}; 1 on the CPU",
        help="Number of GPUs to split the model across (tensor parallel size); 0 means auto.",
    ),
    "expert_layout": engine_option(
        "--expert-layout",
        type=click.Choice(LAYOUTS),
        show_default="expert_parallel if the number of experts is a multiple of --world-size,"
        " otherwise tensor_parallel",
        help="How to split the experts across the GPUs.",
    ),
    "num_threads": engine_option(
        "--threads",
        "num_threads",
        type=NOT_NEGATIVE,
        show_default="0",
        help="Number of CPU threads; 0 uses all cores.",
    ),
    "max_batch": engine_option(
        "--max-batch",
        type=NOT_NEGATIVE,
        show_default="256 on a GPU, 64 on the CPU, less if memory is limited",
        help="Maximum number of requests per forward pass; 0 means the default.",
    ),
    "max_seq": engine_option(
        "--max-seq",
        "-c",
        type=NOT_NEGATIVE,
        show_default="the model's, less if memory is limited",
        help="Context length: maximum tokens per request, including the prompt and the answer; 0"
        " means the model's context length.",
    ),
    "page_size": engine_option(
        "--page-size", type=POSITIVE, show_default="16", help="Tokens per KV-cache page."
    ),
    "num_pages": engine_option(
        "--num-pages",
        type=NOT_NEGATIVE,
        show_default="0",
        help="Number of KV-cache pages; 0 chooses the number from the available memory.",
    ),
    "max_step_tokens": engine_option(
        "--max-step-tokens",
        type=NOT_NEGATIVE,
        show_default="8192 on a GPU, less if memory is limited; 512 on the CPU; at least"
        " twice --max-batch",
        help="Maximum tokens per forward pass; 0 means the default.",
    ),
    "prefill_chunk": engine_option(
        "--prefill-chunk",
        type=NOT_NEGATIVE,
        show_default="0",
        help="Maximum prompt tokens per request in one forward pass; 0 means no limit other than"
        " --max-step-tokens.",
    ),
    "step_budget_ms": engine_option(
        "--step-budget",
        "step_budget_ms",
        type=NOT_NEGATIVE,
        metavar="MS",
        show_default="80 on a GPU, 0 on the CPU",
        help="Target time in milliseconds for a forward pass that both prefills and decodes; 0"
        " means"
        " no target, for the highest throughput.",
    ),
    "kv_dtype": engine_option(
        "--kv-dtype",
        type=KvDtype(list(KV_DTYPES)),
        show_default="bfloat16 on a GPU, float32 on the CPU",
        help="Data type of the KV cache: fp8_e4m3 (or fp8), bfloat16 (or bf16) on a GPU, float32"
        " on the CPU; auto is the default.",
    ),
    "memory_limit": engine_option(
        "--memory-limit",
        "memory_limit",
        type=MemoryLimit(),
        show_default="0.97 on a GPU, 0.9 on the CPU",
        help="Memory to use on each GPU, or in total on the CPU: a size, or a fraction of the free"
        " memory. --gpu-memory-utilization is a fraction of total memory and is converted to a"
        " size.",
    ),
    "prefix_cache": engine_option(
        "--prefix-cache/--no-prefix-cache",
        default=None,
        show_default="on",
        help="Reuse the KV cache for identical prompt prefixes.",
    ),
    "graphs": engine_option(
        "--graphs/--no-graphs",
        default=None,
        show_default="on with a GPU",
        help="Run decode steps as CUDA graphs.",
    ),
    "plan_ahead": engine_option(
        "--plan-ahead/--no-plan-ahead",
        default=None,
        show_default="on with a GPU",
        help="Schedule the next forward pass while the current one is running.",
    ),
    "speculate": engine_option(
        "--speculate",
        type=Speculate(),
        metavar=Speculate.name,
        show_default="off",
        help="Speculative decoding method; the output does not change. lookup:N (prompt lookup)"
        f" copies up to N draft tokens per request (N from 1 to {MAX_DRAFT_TOKENS}) from the"
        " prompt, a prediction and the answer so far. mtp (multi-token prediction) drafts 1 token"
        " with the checkpoint's prediction layer. auto uses lookup and, if the checkpoint has it,"
        " the prediction layer, as long as that saves time.",
    ),
    "check_operations": engine_option(
        "--check-operations",
        is_flag=True,
        default=None,
        help="Wait for each operation to finish, so that errors name the operation that failed"
        " (slow).",
    ),
}
SAMPLING_HELP = {
    "temperature": "Sampling temperature; 0 always takes the most likely token.",
    "top_p": "Sample from the most likely tokens whose probabilities add up to this.",
    "top_k": "Sample from only this many of the most likely tokens; 0 turns this off.",
    "min_p": "Drop tokens less likely than this fraction of the most likely token's probability.",
    "repetition_penalty": "Penalize tokens that the prompt or answer already contains; 1 turns this"
    " off.",
    "frequency_penalty": "Penalize tokens by how often the answer already contains them.",
    "presence_penalty": "Penalize tokens that the answer already contains.",
    "num_logprobs": "How many of the most likely tokens to list for each token; -1 turns"
    " log-probabilities off.",
    "seed": "Random seed for sampling.",
}
SAMPLING_TYPES: dict[str, Finite | Whole] = {
    "temperature": Finite(min=0),
    "top_p": Finite(0, 1),
    "top_k": NOT_NEGATIVE,
    "min_p": Finite(0, 1),
    "repetition_penalty": Finite(min=0),
    "frequency_penalty": Finite(-2, 2),
    "presence_penalty": Finite(-2, 2),
    "num_logprobs": Whole(-1, 20),
    "seed": SEED,
}
SAMPLING_DEFAULTS = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "num_logprobs": -1,
    "seed": 0,
}
SAMPLING = {
    name: sampling_option(
        f"--{name.removeprefix('num_').replace('_', '-')}",
        name,
        type=kind,
        default=SAMPLING_DEFAULTS[name],
        help=SAMPLING_HELP[name],
    )
    for name, kind in SAMPLING_TYPES.items()
}
TOPICS = {"engine": ENGINE, "sampling": SAMPLING}


def with_options(*tables: Sequence[Decorator]) -> Decorator:
    """Make a decorator that adds the options of these tables."""

    def decorate(function: Function) -> Function:
        for option in reversed([one for table in tables for one in table]):
            function = option(function)
        return function

    return decorate


def gathered(
    options: Mapping[str, MakeOption],
    keyword: str,
    make: Callable[[dict[str, Any]], object],
    **defaults: object,
) -> Decorator:
    """Make a decorator that adds options and hands them over as one argument.

    `defaults` are a command's own: a value, or a text that says how the command finds one.
    """

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(**values: Any) -> Any:
            values[keyword] = make({name: values.pop(name) for name in options})
            return function(**values)

        decorated: Function = run
        for name, option in reversed(list(options.items())):
            decorated = option(**own_default(defaults.get(name)))(decorated)
        return decorated

    return decorate


def own_default(default: object) -> dict[str, object]:
    if isinstance(default, str):
        return {"show_default": default, "is_own": True}
    return {} if default is None else {"default": default, "show_default": True, "is_own": True}


def make_sampling(values: dict[str, Any]) -> "Sampling":
    from glm_engine.core.requests import Sampling

    return Sampling(**values)


def make_engine_values(values: dict[str, Any]) -> dict[str, Any]:
    if values["kv_dtype"] is not None:
        values["kv_dtype"] = KV_DTYPES[values["kv_dtype"]]
    if (chosen := values["speculate"]) is not None:
        values["speculate"] = chosen.method
        values["max_draft_tokens"] = chosen.max_draft_tokens
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


model_options = with_options((MODEL_OR_NONE, *SYNTHETIC_OPTIONS))
model_or_synthetic = with_argument(model_options)


def make_engine_options(
    model_dir: str, engine_values: Mapping[str, Any], **defaults: Any
) -> "EngineOptions":
    """Return EngineOptions: the user's values over the command's own defaults."""
    from glm_engine.core.requests import EngineOptions

    chosen = {name: value for name, value in engine_values.items() if value is not None}
    values = {**defaults, **chosen}
    refuse_acceptance(**values)
    if isinstance(values.get("memory_limit_bytes"), ShareOfAll):
        values["memory_limit_bytes"] = bytes_of(values["memory_limit_bytes"], values)
    return EngineOptions(model_dir=model_dir, **values)


def refuse_acceptance(
    acceptance_length: float | None = None,
    synthetic: bool = False,
    speculate: str | None = None,
    max_draft_tokens: int = 0,
    **_others: object,
) -> None:
    """Raise BadInputError for --acceptance-length without what it is for."""
    if acceptance_length is None:
        return
    if not synthetic:
        raise BadInputError("--acceptance-length needs --synthetic, because it changes the text")
    if speculate in (None, "off"):
        raise BadInputError("--acceptance-length needs --speculate lookup:N, mtp or auto")
    if acceptance_length > max_draft_tokens + 1:
        raise BadInputError(
            f"--acceptance-length: expected 1 to {max_draft_tokens + 1} with --speculate"
            f" {Speculation(speculate, max_draft_tokens)}, got {acceptance_length:g}"
        )


def bytes_of(limit: ShareOfAll, values: Mapping[str, Any]) -> int:
    """Return the bytes of a share of all memory of the device, and say so."""
    from glm_engine.core.console import human_bytes
    from glm_engine.core.device_memory import total_bytes

    total = values.get("device_memory_bytes") or total_bytes(values.get("device", "auto"))
    size = int(limit.share * total)
    tell(
        f"--gpu-memory-utilization {limit.text} of {human_bytes(total)}:"
        f" --memory-limit {human_bytes(size).replace(' ', '')}"
    )
    return size


def is_stated(name: str) -> bool:
    """Say whether the command line gives a value, rather than a variable, a file or a default."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def source_of(name: str) -> str | None:
    """Return what states an option's value: its flag, its variable or --config; None if nothing."""
    context = click.get_current_context()
    param = next(one for one in context.command.params if one.name == name)
    sources: dict[click.core.ParameterSource | None, str | None] = {
        click.core.ParameterSource.COMMANDLINE: stated_name(param),
        click.core.ParameterSource.ENVIRONMENT: cast("str | None", param.envvar),
        click.core.ParameterSource.DEFAULT_MAP: "--config",
    }
    return sources.get(context.get_parameter_source(name))


def unstated(name: str) -> Any:
    """Return the value that an option has if the command line does not give one."""
    context = click.get_current_context()
    param = next(one for one in context.command.params if one.name == name)
    return param.consume_value(context, {})[0]


def refuse_stated(reason: str, *names: str) -> None:
    """Raise BadInputError where the command line states one of these: it would be for nothing."""
    context = click.get_current_context()
    stated = [
        alias_typed(one, context) or stated_name(one)
        for one in context.command.params
        if one.name in names and is_stated(one.name)
    ]
    if stated:
        raise BadInputError(f"{reason}: {', '.join(stated)}")
