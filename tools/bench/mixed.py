"""`python -m tools.bench.mixed`: device time of steps that carry prompt tokens beside decode rows.

Requests decode without an end; beside them prompts of one length are submitted, one at a time, each
of which ends with its first token. The time is the device's, the median over steps that held every
decode row and one whole prompt. Random weights, random tokens, no prefix cache, no step budget.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from glm_engine.bench.costs import config_path
from glm_engine.bench.steps import (
    MILLION,
    Decoding,
    RequestFailedError,
    poll,
    random_prompt,
)
from glm_engine.cli.option_types import POSITIVE, NumberList
from glm_engine.core.engine import Engine
from glm_engine.core.files import prepare_target, write_report
from glm_engine.core.reports import Step
from glm_engine.core.requests import EngineOptions, Request
from tools.bench import command
from tools.bench.report import Figure

CONTEXT = 128
STEPS_FOR_EACH = 16


@dataclass
class MixedSteps:
    """Steps of `batch` decode rows, of which some carry a prompt of `length` tokens."""

    engine: Engine
    generator: random.Random
    batch: int
    num_steps: int

    def settle(self) -> None:
        """Return once a step held every decode row and nothing else."""
        while not any(self.carries(step, 0) for step in self.engine.take_steps()):
            self.wait_for(None)

    def milliseconds(self, length: int) -> float:
        self.engine.take_steps()
        times: list[float] = []
        for _ in range(STEPS_FOR_EACH * self.num_steps):
            times += self.times_beside(length)
            if len(times) >= self.num_steps:
                return median(times[: self.num_steps])
        raise RequestFailedError(
            f"{self.batch} decode rows and {length} prompt tokens: expected {self.num_steps} steps "
            f"of both, got {len(times)}"
        )

    def times_beside(self, length: int) -> list[float]:
        """Submit a prompt, wait for its end, and return the times of the steps that carried it; for
        a length of 0 those of the steps until the next event."""
        waited = self.submit(length) if length else None
        self.wait_for(waited)
        return [
            step["device_ns"] / MILLION
            for step in self.engine.take_steps()
            if self.carries(step, length)
        ]

    def carries(self, step: Step, length: int) -> bool:
        """Whether a step held every decode row and one whole prompt of `length` tokens."""
        num_rows = self.batch + length
        return step["num_decode_tokens"] == self.batch and step["num_tokens"] == num_rows

    def submit(self, length: int) -> int:
        prompt = random_prompt(self.generator, self.engine.vocab_size, length)
        return self.engine.submit(Request(prompt, max_tokens=1, ignore_eos=True))

    def wait_for(self, request: int | None) -> None:
        """Wait for the end of a request; for the next events if there is none to wait for."""
        has_ended = False
        while not has_ended:
            ended = [event.request_id for event in poll(self.engine) if event.ends_request]
            if any(one != request for one in ended):
                raise RequestFailedError(
                    f"a request ended early while {self.batch} rows were being measured"
                )
            has_ended = request is None or bool(ended)


def decode_beside(
    engine: Engine, generator: random.Random, batch: int, lengths: Sequence[int], num_steps: int
) -> Iterator[Figure]:
    """What each length takes beside `batch` requests that decode."""
    wanted = STEPS_FOR_EACH * num_steps * len(lengths)
    decoding = Decoding(engine, generator, batch, CONTEXT, wanted)
    requests = decoding.start()
    beside = MixedSteps(engine, generator, batch, num_steps)
    beside.settle()
    for length in lengths:
        name = f"{batch} decode rows, {length} prompt tokens"
        yield Figure(name, beside.milliseconds(length), "ms")
    decoding.finish(requests)


def engine_options(
    model: str,
    batches: Sequence[int],
    lengths: Sequence[int],
    num_steps: int,
    chosen: Mapping[str, Any],
) -> EngineOptions:
    most_rows = max(batches) + max(lengths)
    decoded = STEPS_FOR_EACH * num_steps * len(lengths)
    prefill = max(batches) * CONTEXT // most_rows + max(batches)
    return EngineOptions(
        model_dir=config_path(model),
        synthetic=True,
        **chosen,
        max_batch=max(batches) + 1,
        max_seq=max(CONTEXT + 2 * prefill + decoded, max(lengths)) + STEPS_FOR_EACH,
        max_step_tokens=most_rows,
        step_budget_ms=0,
        prefix_cache=False,
    )


def measure(
    model: str,
    ranks: Mapping[str, Any],
    batches: Sequence[int],
    lengths: Sequence[int],
    num_steps: int,
    generator: random.Random,
) -> list[Figure]:
    figures: list[Figure] = []
    with Engine(engine_options(model, batches, lengths, num_steps, ranks)) as engine:
        for batch in batches:
            for figure in decode_beside(engine, generator, batch, lengths, num_steps):
                figures.append(figure)
                click.echo(f"{figure.name:<40}{figure.value:9.3f} {figure.unit}")
    return figures


@click.command()
@command.model
@command.device
@command.world_size
@command.expert_layout
@click.option("--batch", "batches", type=NumberList(), default="16,64,256", show_default=True)
@click.option(
    "--prompt",
    "prompts",
    type=NumberList(),
    default="16,64,128,256,512,1024,2048",
    show_default=True,
    help="Prompt lengths in tokens; steps without a prompt are measured first.",
)
@click.option("--steps", "num_steps", type=POSITIVE, default=12, show_default=True)
@command.seed
@command.output("the figures")
def main(
    model: str,
    batches: Sequence[int],
    prompts: Sequence[int],
    num_steps: int,
    seed: int,
    output: Path | None,
    **ranks: object,
) -> None:
    """Prints a line for each number of decode rows and length of a prompt."""
    with command.errors_in_one_line("tools.bench.mixed"):
        if output is not None:
            prepare_target(output)
        figures = measure(model, ranks, batches, (0, *prompts), num_steps, random.Random(seed))
        if output is not None:
            write_report([figure.as_dict() for figure in figures], output)


if __name__ == "__main__":
    main()
