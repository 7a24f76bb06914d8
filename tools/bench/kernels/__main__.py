"""`python -m tools.bench.kernels`: each kernel over its shapes, beside the library."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch

from glm_engine.core.console import print_columns
from glm_engine.core.files import prepare_target, write_report
from glm_engine.verify.device import BackendError, library_path
from tools.bench import command
from tools.bench.kernels import ceilings, library, report
from tools.bench.kernels.case import DEVICE, HOST, LIBRARY, Call, Case, Rates
from tools.bench.kernels.device import KernelDevice
from tools.bench.kernels.models import MODELS
from tools.bench.kernels.plan import Planned, planned
from tools.bench.report import now

FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, OSError)
KEPT_BYTES = 32 << 30
SEED = 20


def first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def beside(case: Case, calls: Sequence[Call]) -> tuple[str, float | None]:
    """Name and microseconds of what the library does in the same place."""
    if case.library is None or not calls:
        return "", None
    try:
        return case.library.name, library.microseconds(calls)
    except FAILURES as error:
        return f"{case.library.name}: {first_line(error)[:80]}", None


def measured(device: KernelDevice, model: str, case: Case, rates: Rates) -> report.Line:
    clocks: dict[str, Callable[[Sequence[Call]], float]] = {
        DEVICE: device.microseconds,
        HOST: device.waited_microseconds,
        LIBRARY: library.microseconds,
    }
    spent = clocks[case.clock](case.calls)
    fast, exact = (case.library.calls, case.library.exact) if case.library else ((), ())
    name, library_us = beside(case, fast)
    exact_name, exact_us = beside(case, exact)
    if exact and exact_us is None:
        say(f"exact accumulation: {exact_name}")
    read_us = library.microseconds(case.reads) if case.reads else None
    times = report.Spent(spent, library_us, read_us, exact_us)
    return report.line_of(model, case, times, name, rates)


def say(text: str) -> None:
    print(f"kernels: {text}", file=sys.stderr, flush=True)


@dataclass
class Run:
    """Lines as they are measured; what failed is named and left out."""

    device: KernelDevice
    described: report.Described
    output: Path | None
    lines: list[report.Line] = field(default_factory=list)
    num_failed: int = 0

    def measure(self, line: Planned) -> None:
        try:
            done = measured(self.device, line.model, line.build(), self.described.rates)
        except FAILURES as error:
            self.num_failed += 1
            say(f"{line.model} {line.operation} {line.detail}: {first_line(error)}")
            return
        self.lines.append(done)
        print("  ".join(done.cells()), flush=True)
        if self.output is not None:
            write_report(report.as_dict(self.described, self.lines), self.output)

    def measure_all(self, lines: list[Planned], seconds: float) -> bool:
        """False where the GPU answers no more."""
        end = time.monotonic() + seconds
        for index, line in enumerate(lines):
            if time.monotonic() > end:
                say(f"{seconds:.0f} s have passed: {len(lines) - index} lines were left out")
                return True
            self.measure(line)
            if self.device.is_lost():
                say(f"the device was lost in {line.operation} {line.detail}")
                return False
            if torch.cuda.memory_reserved() > KEPT_BYTES:
                torch.cuda.empty_cache()
        return True


def driver_version() -> str:
    """As nvidia-smi names it."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.splitlines()[0].strip() if done.stdout else "unknown"


def machine() -> dict[str, object]:
    return {
        "date": now(),
        "device": torch.cuda.get_device_name(),
        "memory_gib": round(torch.cuda.mem_get_info()[1] / 2**30, 1),
        "driver": driver_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def opened_device() -> KernelDevice:
    """The CUDA device, or one line that says why there is none.

    Kernels load when they are first called; otherwise all of PyTorch's would load at the start.
    """
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    if not library_path("cuda").exists():
        sys.exit(f"kernels: {library_path('cuda')} is not built")
    try:
        return KernelDevice()
    except (BackendError, OSError) as error:
        sys.exit(f"kernels: {error}")


@click.command()
@click.option("--only", multiple=True, help="Measure only this operation (repeatable).")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Choice(list(MODELS)),
    help="Measure only the shapes of this model (repeatable).",
)
@command.output("the lines, after each,")
@click.option(
    "--seconds",
    default=300.0,
    show_default=True,
    help="Start no new line after this many seconds.",
)
def main(only: Sequence[str], models: Sequence[str], output: Path | None, seconds: float) -> None:
    """Measure each kernel over its shapes, beside the library."""
    with command.errors_in_one_line("kernels"):
        target = prepare_target(output) if output else None
    device = opened_device()
    if not torch.cuda.is_available():
        sys.exit("kernels: PyTorch finds no GPU")
    torch.manual_seed(SEED)
    rates = ceilings.measure(device)
    print("\n".join(report.ceiling_lines(rates)), flush=True)
    given = " ".join(["python -m tools.bench.kernels", *sys.argv[1:]])
    run = Run(device, report.Described(given, machine(), rates), target)
    lines = planned(device, models or list(MODELS), only)
    answers = run.measure_all(lines, seconds)
    print_columns(report.TITLES, [line.cells() for line in run.lines])
    if not answers:
        sys.exit(1)
    device.close()
    if run.num_failed:
        sys.exit(f"kernels: {run.num_failed} of {len(lines)} lines failed")


if __name__ == "__main__":
    main()
