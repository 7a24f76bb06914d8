"""`python -m tools.bench.kernels`: each kernel over its shapes, beside the library."""

import argparse
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from tests.native.backend import BackendError, library_path
from tools.bench.kernels import ceilings, library, report
from tools.bench.kernels.case import DEVICE, HOST, LIBRARY, Case
from tools.bench.kernels.device import KernelDevice
from tools.bench.kernels.models import MODELS
from tools.bench.kernels.plan import Planned, planned

FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, OSError)
KEPT_BYTES = 32 << 30
SEED = 20


def first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def beside(case: Case) -> tuple[str, float | None]:
    """Name and microseconds of what the library does in the same place."""
    if case.library is None:
        return "", None
    try:
        return case.library.name, library.microseconds(case.library.calls)
    except FAILURES as error:
        return f"{case.library.name}: {first_line(error)[:80]}", None


def measured(device: KernelDevice, model: str, case: Case, rates) -> report.Line:
    clocks = {DEVICE: device.microseconds, HOST: device.waited_microseconds}
    clocks[LIBRARY] = library.microseconds
    spent = clocks[case.clock](case.calls)
    name, library_us = beside(case)
    return report.line_of(model, case, spent, library_us, name, rates)


class Run:
    """Lines as they are measured; what failed is named and left out."""

    def __init__(self, device: KernelDevice, described: report.Described, output: Path | None):
        self.device, self.described, self.output = device, described, output
        self.lines: list[report.Line] = []
        self.num_failed = 0

    def measure(self, wanted: Planned) -> None:
        try:
            line = measured(self.device, wanted.model, wanted.build(), self.described.rates)
        except FAILURES as error:
            self.num_failed += 1
            self.say(f"{wanted.model} {wanted.operation} {wanted.detail}: {first_line(error)}")
            return
        self.lines.append(line)
        print("  ".join(line.cells()), flush=True)
        if self.output is not None:
            report.write(self.output, self.described, self.lines)

    def measure_all(self, lines: list[Planned], seconds: float) -> bool:
        """False where the GPU answers no more."""
        end = time.monotonic() + seconds
        for index, wanted in enumerate(lines):
            if time.monotonic() > end:
                self.say(f"{seconds:.0f} s are over: {len(lines) - index} lines were left out")
                return True
            self.measure(wanted)
            if self.device.is_lost():
                self.say(f"the device was lost in {wanted.operation} {wanted.detail}")
                return False
            if torch.cuda.memory_reserved() > KEPT_BYTES:
                torch.cuda.empty_cache()
        return True

    @staticmethod
    def say(text: str) -> None:
        print(f"kernels: {text}", file=sys.stderr, flush=True)


def machine() -> dict:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="measure this operation alone (repeatable)")
    parser.add_argument("--model", action="append", choices=MODELS, help="these shapes alone")
    parser.add_argument("--output", type=Path, help="folder for kernels.json and kernels.md")
    parser.add_argument("--seconds", type=float, default=300, help="begin no line after so many")
    options = parser.parse_args()
    options.model = options.model or list(MODELS)
    return options


def opened_device() -> KernelDevice:
    """The CUDA device, or one line that says why there is none."""
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    if not library_path("cuda").exists():
        sys.exit(f"kernels: {library_path('cuda')} is not built")
    try:
        return KernelDevice()
    except (BackendError, OSError) as error:
        sys.exit(f"kernels: {error}")


def main() -> None:
    options = parsed()
    device = opened_device()
    if not torch.cuda.is_available():
        sys.exit("kernels: this PyTorch sees no GPU")
    torch.manual_seed(SEED)
    rates = ceilings.measure(device)
    print("\n".join(report.ceiling_lines(rates)), flush=True)
    command = " ".join(["python -m tools.bench.kernels", *sys.argv[1:]])
    run = Run(device, report.Described(command, machine(), rates), options.output)
    lines = planned(device, options.model, options.only or ())
    answers = run.measure_all(lines, options.seconds)
    print(report.text_table(run.lines))
    if not answers:
        sys.exit(1)
    device.close()
    if run.num_failed:
        sys.exit(f"kernels: {run.num_failed} of {len(lines)} lines failed")


if __name__ == "__main__":
    main()
