"""`glm evaluate`: the capitals of all countries, in one continuous batch."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import POSITIVE
from glm_engine.core.console import (
    count_progress,
    human_rate,
    make_table,
    print_fields,
    print_json,
    print_table,
    rate,
    verdict,
)
from glm_engine.core.errors import BadInputError, ExitCode
from glm_engine.core.files import read_json
from glm_engine.core.reports import EngineInfo

if TYPE_CHECKING:
    from glm_engine.core.runner import Generation, Prompt
    from glm_engine.text.tokenizer import GlmTokenizer

Fact = Mapping[str, str]
Report = dict[str, Any]
FACTS_FILE = "countries.json"
FACT_KEYS = ("country", "capital", "prompt")
MAX_TOKENS = 16


@options.command("evaluate")
@options.MODEL
@click.option(
    "--facts",
    type=click.Path(),
    show_default=f"MODEL/{FACTS_FILE}",
    help="JSON file with the facts to ask about.",
)
@click.option(
    "--threshold",
    type=options.Finite(0, 1),
    default=0.95,
    help="Minimum accuracy; below it, the command exits with 1.",
)
@click.option("--limit", type=POSITIVE, show_default="all", help="Ask about only this many facts.")
@options.engine_options_with(max_batch=32, max_seq=256)
@options.JSON
def command(
    model_dir: str,
    facts: str | None,
    threshold: float,
    limit: int | None,
    engine_values: Mapping[str, Any],
    as_json: bool,
) -> ExitCode:
    """Ask for the capital of every country in one batch and report the accuracy.

    Exits with 1 if the accuracy is below the threshold.
    """
    from glm_engine.core.loading import load_engine
    from glm_engine.core.runner import Runner
    from glm_engine.hub.names import find_checkpoint
    from glm_engine.text.tokenizer import GlmTokenizer

    model_dir = find_checkpoint(model_dir)
    tokenizer = GlmTokenizer(model_dir)
    asked = read_facts(Path(facts) if facts else Path(model_dir) / FACTS_FILE)[:limit]
    prompts = [make_prompt(tokenizer, fact) for fact in asked]
    chosen = options.make_engine_options(model_dir, engine_values)
    engine, load_seconds = load_engine(chosen, quiet=as_json)
    with engine:
        began = time.monotonic()
        with count_progress(len(prompts), "capitals", quiet=as_json) as advance:
            done = Runner(engine, tokenizer).run_all(prompts, lambda _: advance())
        seconds = time.monotonic() - began
        report = make_report(asked, done, seconds, load_seconds, engine.info(), threshold)
    print_json(report) if as_json else print_report(report)
    return ExitCode.OK if report["passed"] else ExitCode.FAILED


def read_facts(path: Path) -> list[Fact]:
    """Return the facts of a file, each with its country, capital and prompt."""
    facts = read_json(path)
    if not isinstance(facts, list) or not facts:
        raise BadInputError(f"{path}: expected a JSON list with at least one fact")
    for index, fact in enumerate(facts):
        for key in FACT_KEYS:
            if not isinstance(fact, dict) or not isinstance(fact.get(key), str):
                raise BadInputError(f"{path}: fact {index}: expected {key!r} to be a string")
    return facts


def make_prompt(tokenizer: "GlmTokenizer", fact: Fact) -> "Prompt":
    from glm_engine.core.engine import Request
    from glm_engine.core.runner import Prompt

    return Prompt(Request(tokenizer.encode(fact["prompt"]), max_tokens=MAX_TOKENS))


def is_right(fact: Fact, text: str) -> bool:
    """The continuation must begin with the capital, and the word must end there."""
    text = text.strip()
    rest = text.removeprefix(fact["capital"])
    return rest != text and not rest[:1].isalnum()


def make_report(
    facts: Sequence[Fact],
    done: "Sequence[Generation]",
    seconds: float,
    load_seconds: float,
    info: EngineInfo,
    threshold: float,
) -> Report:
    wrong = [
        {**fact, "completion": one.text}
        for fact, one in zip(facts, done, strict=True)
        if not is_right(fact, one.text)
    ]
    num_right = len(facts) - len(wrong)
    num_tokens = sum(len(one.tokens) for one in done)
    return {
        "num_asked": len(facts),
        "num_right": num_right,
        "accuracy": num_right / len(facts),
        "threshold": threshold,
        "passed": num_right / len(facts) >= threshold,
        "wrong": wrong,
        "seconds": seconds,
        "load_seconds": load_seconds,
        "generated_tokens": num_tokens,
        "tokens_per_second": rate(num_tokens, seconds),
        "device": info["device"],
        "world_size": info["world_size"],
        "num_steps": info["num_steps"],
        "num_preemptions": info["num_preemptions"],
        "num_cached_tokens": info["num_cached_tokens"],
    }


def print_report(report: Report) -> None:
    if report["wrong"]:
        table = make_table("country", "capital", "completion")
        for one in report["wrong"]:
            table.add_row(one["country"], one["capital"], one["completion"].strip())
        print_table(table)
        print()
    accuracy = f"{report['accuracy']:.1%} (threshold {report['threshold']:.0%})"
    print_fields(
        [
            ("right", f"{report['num_right']} of {report['num_asked']}"),
            ("accuracy", verdict(accuracy, report["passed"])),
            ("device", f"{report['device']}, world size {report['world_size']}"),
            ("time", f"{report['seconds']:.2f} s in {report['num_steps']} steps"),
            ("speed", human_rate(report["tokens_per_second"])),
        ]
    )
