"""`python -m tools.bench.trace`: where the device time of a step goes, kernel by kernel.

CUPTI, through PyTorch's profiler, records every kernel while requests decode and prompts of one
length come beside them, as in `tools.bench.mixed`. A step begins with the kernel that looks up its
embeddings; the engine's own record of the steps, in the same order, says how many rows each held.
What a kernel adds is the time from the end of the kernel before it to its own end, so that kernels
that overlap are not counted twice. Of several GPUs the first is shown.
"""

import json
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import click

from glm_engine.bench.steps import Decoding
from glm_engine.cli.option_types import POSITIVE
from glm_engine.core.engine import Engine
from glm_engine.core.errors import GlmError
from glm_engine.core.files import prepare_target, write_report
from tools.bench import command
from tools.bench.mixed import CONTEXT, STEPS_FOR_EACH, MixedSteps, engine_options
from tools.bench.report import columns

if TYPE_CHECKING:
    from torch.profiler import profile

FIRST_OF_STEP = "embed_rows"
ONLY_WITH_PROMPTS = "attend_prefill_rows"


class NothingTracedError(GlmError):
    """The profiler saw no step of the asked kind."""


@dataclass(frozen=True)
class Launch:
    """A kernel: what it is, when it began and ended (µs), and its grid."""

    name: str
    begin: float
    end: float
    grid: Sequence[int] = ()


@dataclass(frozen=True)
class Share:
    """What the launches of one kernel with one grid take of a step, in µs."""

    name: str
    launches: int
    added: float
    busy: float


def short_name(name: str) -> str:
    """A kernel's name without return type, namespaces and arguments; instances keep theirs."""
    bare = re.sub(r"\(anonymous namespace\)::|\b\w+::", "", name.removeprefix("void "))
    depth = 0
    for place, letter in enumerate(bare):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            return bare[:place]
    return bare


def steps_of(launches: Iterable[Launch]) -> list[list[Launch]]:
    """Launches in their order, cut where a step begins; what ran before the first is left out, and
    so is the last, which may not be whole."""
    steps: list[list[Launch]] = []
    for launch in sorted(launches, key=lambda one: one.begin):
        if launch.name.startswith(FIRST_OF_STEP):
            steps.append([])
        if steps:
            steps[-1].append(launch)
    return steps[:-1]


def carries_prompt(step: list[Launch]) -> bool:
    return any(ONLY_WITH_PROMPTS in launch.name for launch in step)


def length_of(step: list[Launch]) -> float:
    """µs from the first kernel's begin to the last one's end."""
    return max(launch.end for launch in step) - step[0].begin


def middle(steps: list[list[Launch]]) -> list[Launch]:
    """The step of median length."""
    ordered = sorted(steps, key=length_of)
    return ordered[len(ordered) // 2]


def shares_of(step: list[Launch]) -> list[Share]:
    """The kernels of a step, the one that adds most first."""
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    reached = step[0].begin
    for launch in step:
        grid = "x".join(str(size) for size in launch.grid if size > 1) or "1"
        added = max(0.0, launch.end - reached)
        reached = max(reached, launch.end)
        taken[f"{launch.name} [{grid}]"].append((added, launch.end - launch.begin))
    shares = [
        Share(name, len(times), sum(one for one, _ in times), sum(two for _, two in times))
        for name, times in taken.items()
    ]
    return sorted(shares, key=lambda share: -share.added)


def table(step: list[Launch]) -> str:
    whole = length_of(step)
    rows = [("kernel [grid]", "launches", "adds µs", "each", "busy each", "share")]
    for share in shares_of(step):
        each, busy = share.added / share.launches, share.busy / share.launches
        figures = (f"{share.added:.1f}", f"{each:.2f}", f"{busy:.2f}", f"{share.added / whole:.1%}")
        rows.append((share.name, str(share.launches), *figures))
    return columns(rows)


def launches_of(trace: Mapping[str, Any]) -> list[Launch]:
    """The kernels of a trace in Chrome's format, as PyTorch's profiler writes it."""
    return [
        Launch(
            short_name(event["name"]),
            event["ts"],
            event["ts"] + event["dur"],
            tuple(event["args"]["grid"]),
        )
        for event in trace["traceEvents"]
        if event.get("cat") == "kernel" and event["args"].get("device", 0) == 0
    ]


def profiler() -> "profile":
    """PyTorch's profiler of what a GPU runs.

    PyTorch is the first to call CUDA here, so it decides when kernels are loaded; a group of ranks
    needs them loaded at once.
    """
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    try:
        from torch.cuda import is_available
        from torch.profiler import ProfilerActivity, profile
    except ImportError as error:
        raise NothingTracedError(f"expected PyTorch, for its profiler: {error}") from error
    if not is_available():
        raise NothingTracedError("expected a GPU that PyTorch can use, got none")
    return profile(activities=[ProfilerActivity.CUDA])


def recorded_launches(recorded: "profile") -> list[Launch]:
    """What a profiler that has ended saw."""
    with NamedTemporaryFile(suffix=".json") as written:
        recorded.export_chrome_trace(written.name)
        return launches_of(json.loads(Path(written.name).read_bytes()))


def steps_beside(launches: list[Launch], beside: MixedSteps, length: int) -> list[list[Launch]]:
    """The kernels of each step of every decode row and a prompt of `length` tokens (0: none).

    The steps in which the decode rows' own prompts were computed are not among them.
    """
    return [
        step
        for step, taken in zip(steps_of(launches), beside.steps, strict=False)
        if beside.carries(taken, length) and carries_prompt(step) == (length > 0)
    ]


def measure(
    model: str,
    chosen: Mapping[str, Any],
    batch: int,
    length: int,
    num_steps: int,
    generator: random.Random,
) -> tuple[list[Launch], Mapping[str, Any]]:
    """The step of median length of those that carried a prompt, or that carried none; the engine's
    `info`."""
    opened = engine_options(model, [batch], [length], num_steps, chosen)
    recorded = profiler()
    with Engine(opened) as engine:
        info = engine.info()
        decoding = Decoding(engine, generator, batch, CONTEXT, STEPS_FOR_EACH * num_steps)
        beside = MixedSteps(engine, generator, batch, num_steps)
        with recorded:
            requests = decoding.start()
            beside.settle()
            beside.milliseconds(length)
            decoding.finish(requests)
    launches = recorded_launches(recorded)
    wanted = steps_beside(launches, beside, length)
    if not wanted:
        raise NothingTracedError(
            f"expected steps of {batch} decode rows and {length} prompt tokens, "
            f"got {len(launches)} kernels and no matching step"
        )
    return middle(wanted), info


@click.command()
@command.model
@command.device
@command.world_size
@command.expert_layout
@click.option("--layers", "num_layers", type=POSITIVE, show_default="all")
@click.option("--batch", type=POSITIVE, default=16, show_default=True)
@click.option(
    "--prompt",
    type=click.IntRange(min=0),
    default=2048,
    show_default=True,
    help="Prompt tokens in the same step as the decode rows; 0 for none.",
)
@command.num_steps(6)
@command.seed
@command.output("the step's kernels")
def main(
    model: str,
    batch: int,
    prompt: int,
    num_steps: int,
    seed: int,
    output: Path | None,
    **chosen: object,
) -> None:
    """Prints the kernels of one step, the one that adds most first."""
    with command.errors_in_one_line("tools.bench.trace"):
        if output is not None:
            prepare_target(output)
        step, info = measure(model, chosen, batch, prompt, num_steps, random.Random(seed))
        size = f"{info['num_layers']} layers, world size {info['world_size']}"
        rows = f"{batch} decode rows, {prompt} prompt tokens"
        click.echo(f"{model}, {size}: {rows}: {length_of(step):.1f} µs")
        click.echo(table(step))
        if output is not None:
            write_report([asdict(launch) for launch in step], output)


if __name__ == "__main__":
    main()
