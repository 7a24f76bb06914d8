"""`glm smoke`: the whole engine on one question with a known answer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import Whole
from glm_engine.core.console import human_rate, print_fields, print_json, verdict
from glm_engine.core.engine_words import INSTALL_CUDA, for_users
from glm_engine.core.errors import EngineError, ExitCode
from glm_engine.core.reports import EngineInfo

if TYPE_CHECKING:
    from glm_engine.core.runner import Generation, Prompt
    from glm_engine.text.tokenizer import GlmTokenizer

Report = dict[str, Any]
PROMPT = "The capital of France is"
ANSWER = "Paris"
MAX_TOKENS = 8
TIMED_TOKENS = 64
BUILD_CUDA = "`tools/develop --with cuda scons engine cuda`, then "
RUN_BUILT = "`tools/develop --with cuda glm smoke --device cuda`"
INSTALL = f"{INSTALL_CUDA}, then "
RUN_INSTALLED = "`glm smoke --device cuda`"


@options.command("smoke")
@options.MODEL
@options.engine_options_with(max_batch=4, max_seq=256)
@click.option(
    "--timed-tokens",
    type=Whole(2),
    default=TIMED_TOKENS,
    help="Number of tokens to generate when measuring decode speed.",
)
@options.JSON
def command(
    model_dir: str, engine_values: Mapping[str, Any], timed_tokens: int, as_json: bool
) -> ExitCode:
    """Run the full engine end to end: complete “The capital of France is”.

    Exits with 1 if the answer does not contain “Paris”.
    """
    from glm_engine.core.loading import load_engine
    from glm_engine.core.runner import Runner
    from glm_engine.hub.names import find_checkpoint
    from glm_engine.text.tokenizer import GlmTokenizer

    model_dir = find_checkpoint(model_dir)
    tokenizer = GlmTokenizer(model_dir)
    chosen = options.make_engine_options(model_dir, engine_values)
    engine, load_seconds = load_engine(chosen, quiet=as_json)
    with engine:
        runner = Runner(engine, tokenizer)
        answer = runner.run_all([prompt(tokenizer, MAX_TOKENS, ignore_eos=False)])[0]
        timed = runner.run_all([prompt(tokenizer, timed_tokens, ignore_eos=True)])[0]
        report = make_report(engine.info(), load_seconds, answer, timed)
    if engine_values["device"] == "cpu":
        report["unused_gpu"] = unused_gpu()
    print_json(report) if as_json else print_report(report)
    return ExitCode.OK if report["passed"] else ExitCode.FAILED


def prompt(tokenizer: "GlmTokenizer", max_tokens: int, ignore_eos: bool) -> "Prompt":
    from glm_engine.core.engine import Request
    from glm_engine.core.runner import Prompt

    request = Request(tokenizer.encode(PROMPT), max_tokens=max_tokens, ignore_eos=ignore_eos)
    return Prompt(request)


def unused_gpu() -> str | None:
    """Return a line that says how to use the GPU of this machine; None without a GPU."""
    from glm_engine.core.engine import find_gpus

    try:
        num_gpus = find_gpus()["num_gpus"]
    except EngineError as error:
        return for_users(error)
    return f"not used; to use it: {way_to_cuda()}" if num_gpus else None


def way_to_cuda() -> str:
    """Return the commands that run on the GPU, from a wheel or from a checkout."""
    from glm_engine.core import layout
    from glm_engine.core.libraries import find_backend_library

    first, run = (INSTALL, RUN_INSTALLED) if layout.IS_WHEEL else (BUILD_CUDA, RUN_BUILT)
    return run if find_backend_library("cuda") else first + run


def make_report(
    info: EngineInfo, load_seconds: float, answer: "Generation", timed: "Generation"
) -> Report:
    """Return the report; prefill speed is of the first request, decode speed of the timed one."""
    return {
        "prompt": PROMPT,
        "completion": answer.text,
        "passed": ANSWER in answer.text,
        "device": info["device"],
        "world_size": info["world_size"],
        "load_seconds": load_seconds,
        "prefill_tokens_per_second": answer.prefill_rate(),
        "decode_tokens_per_second": timed.decode_rate(),
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": len(answer.tokens),
        "weight_bytes": info["weight_bytes"],
        "kv_bytes": info["kv_bytes"],
        "workspace_bytes": info["workspace_bytes"],
    }


def print_report(report: Report) -> None:
    passed = "yes" if report["passed"] else f"no: expected {ANSWER!r} in the completion"
    gpu = report.get("unused_gpu")
    print_fields(
        [
            ("prompt", report["prompt"]),
            ("completion", report["completion"].strip("\n")),
            ("device", f"{report['device']}, world size {report['world_size']}"),
            *([("GPU", gpu)] if gpu else []),
            ("load", f"{report['load_seconds']:.2f} s"),
            ("prefill", human_rate(report["prefill_tokens_per_second"])),
            ("decode", human_rate(report["decode_tokens_per_second"])),
            ("passed", verdict(passed, report["passed"])),
        ]
    )
