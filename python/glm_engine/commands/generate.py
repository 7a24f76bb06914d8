"""`glm generate`: completes one prompt and streams the text."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import NOT_NEGATIVE, POSITIVE
from glm_engine.core.acceptance import acceptance_length, accepted_line, gained
from glm_engine.core.console import human_rate, print_json, shown_on
from glm_engine.core.reports import EngineInfo
from glm_engine.terminal.reading import decoded

if TYPE_CHECKING:
    from glm_engine.core.requests import Sampling
    from glm_engine.core.runner import Generation, Prompt, Runner
    from glm_engine.text.dialogue import AnswerFinder
    from glm_engine.text.tokenizer import GlmTokenizer

Report = dict[str, Any]


@options.command("generate")
@click.argument("prompt", required=False)
@options.MODEL_OPTION
@click.option(
    "--max-tokens", type=POSITIVE, default=128, help="Maximum number of tokens to generate."
)
@click.option(
    "--min-tokens",
    type=NOT_NEGATIVE,
    default=0,
    help="Minimum number of tokens to generate.",
)
@click.option(
    "--stop", "stop_texts", multiple=True, help="Stop generating before this text (repeatable)."
)
@click.option("--ignore-eos", is_flag=True, help="Continue after the end-of-text token.")
@click.option(
    "--logit-bias",
    "biases",
    multiple=True,
    metavar="ID=BIAS",
    help="Add BIAS to the logit of token ID (repeatable).",
)
@click.option("--chat", is_flag=True, help="Apply the model's chat template to the prompt.")
@click.option("--system", help="System message (requires --chat).")
@click.option("--show-special", is_flag=True, help="Print special tokens as well.")
@click.option("--stats", is_flag=True, help="Print token counts and speed to standard error.")
@options.sampling_options
@options.engine_options_with(max_batch=1)
@options.JSON
def command(
    prompt: str | None,
    model_dir: str,
    engine_values: Mapping[str, Any],
    as_json: bool,
    stats: bool,
    chat: bool,
    system: str | None,
    **request_values: Any,
) -> None:
    """Complete PROMPT and stream the text.

    Without PROMPT, or if it is “-”, the prompt is read from standard input.
    """
    from glm_engine.core.loading import load_engine
    from glm_engine.core.runner import Runner
    from glm_engine.hub.names import find_checkpoint
    from glm_engine.text.tokenizer import GlmTokenizer

    text = read_prompt(prompt)
    model_dir = find_checkpoint(model_dir)
    warn_of_unapplied(Path(model_dir) / "generation_config.json")
    tokenizer = GlmTokenizer(model_dir)
    tokens, finder = encode(tokenizer, model_dir, text, chat, system)
    job = make_prompt(tokens, finder, **request_values)
    chosen = options.make_engine_options(model_dir, engine_values)
    engine, load_seconds = load_engine(chosen, quiet=as_json)
    with engine:
        generation = stream(Runner(engine, tokenizer), job, show=not as_json)
        report = make_report(text, generation, engine.info(), load_seconds)
    if as_json:
        print_json(report)
    elif stats:
        print_stats(report)


def warn_of_unapplied(path: Path) -> None:
    """Name the settings of generation_config.json that `glm generate` does not apply."""
    from glm_engine.core.loading import say
    from glm_engine.server import generation_config

    generation_config.warn_of_unapplied(path, generation_config.read_generation_config(path), say)


def read_prompt(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError("expected a PROMPT as an argument or on standard input")
    return decoded(sys.stdin.buffer.read()).removesuffix("\n")


def encode(
    tokenizer: "GlmTokenizer", model_dir: str, text: str, chat: bool, system: str | None
) -> tuple[list[int], "AnswerFinder | None"]:
    """Return the prompt's tokens, and for a chat what separates thinking from the answer."""
    if not chat:
        if system is not None:
            raise click.UsageError("--system needs --chat")
        return tokenizer.encode(text), None
    from glm_engine.text.dialogue import AnswerFinder, Opening, opening_of
    from glm_engine.text.template import ChatTemplate

    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": text})
    rendered = ChatTemplate(model_dir).render(messages)
    finder = AnswerFinder(in_reasoning=opening_of(rendered) is Opening.THOUGHT)
    return tokenizer.encode(rendered, add_special_tokens=False), finder


def make_prompt(
    tokens: Sequence[int],
    finder: "AnswerFinder | None",
    sampling: "Sampling",
    max_tokens: int,
    min_tokens: int,
    stop_texts: tuple[str, ...],
    ignore_eos: bool,
    biases: Sequence[str],
    show_special: bool,
) -> "Prompt":
    from glm_engine.core.engine import Request
    from glm_engine.core.runner import Prompt

    request = Request(
        tokens,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        sampling=sampling,
        ignore_eos=ignore_eos,
        biases=dict(parse_bias(text) for text in biases),
    )
    return Prompt(request, stop_texts, not show_special, finder=finder)


def parse_bias(text: str) -> tuple[int, float]:
    token_id, equals, bias = text.partition("=")
    try:
        if equals:
            return int(token_id), float(bias)
    except ValueError:
        pass
    raise click.BadParameter(
        f"expected ID=BIAS, e.g. 42=-1.5, got {text!r}", param_hint="--logit-bias"
    )


def stream(runner: "Runner", job: "Prompt", show: bool) -> "Generation":
    """Run one prompt, writing its text as it becomes certain."""
    for generation, text, is_finished in runner.run([job]):
        if show and text:
            sys.stdout.write(shown_on(sys.stdout, text))
            sys.stdout.flush()
        if is_finished:
            ended = generation
    if show:
        print()
    return ended


def make_report(
    text: str, generation: "Generation", info: EngineInfo, load_seconds: float
) -> Report:
    report: Report = {
        "prompt": text,
        "completion": generation.text,
        "finish_reason": generation.finish_reason,
        "prompt_tokens": generation.prompt_tokens,
        "cached_tokens": generation.cached_tokens,
        "completion_tokens": len(generation.tokens),
        "token_ids": generation.tokens,
        "device": info["device"],
        "load_seconds": load_seconds,
        "prefill_tokens_per_second": generation.prefill_rate(),
        "decode_tokens_per_second": generation.decode_rate(),
    }
    if info["speculate"]:
        report["draft_tokens"] = generation.num_draft_tokens
        report["accepted_draft_tokens"] = generation.num_accepted_tokens
        report["mean_acceptance_length"] = acceptance_length(gained(info))
    if generation.prompt.request.sampling.num_logprobs >= 0:
        report["logprobs"] = generation.logprobs
    return report


def print_stats(report: Report) -> None:
    print(
        f"{report['prompt_tokens']} prompt tokens at "
        f"{human_rate(report['prefill_tokens_per_second'])}, "
        f"{report['completion_tokens']} tokens at "
        f"{human_rate(report['decode_tokens_per_second'])}, "
        f"loaded in {report['load_seconds']:.2f} s on {report['device']}, "
        f"ended by {report['finish_reason']}{drafts_of(report)}",
        file=sys.stderr,
    )


def drafts_of(report: Report) -> str:
    """Return the end of the line: how many draft tokens were accepted, if there were any."""
    if not report.get("draft_tokens"):
        return ""
    line = accepted_line(report["accepted_draft_tokens"], report["draft_tokens"])
    return f"; {line}, mean acceptance length {report['mean_acceptance_length']:.2f}"
