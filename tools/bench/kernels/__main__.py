"""`python -m tools.bench.kernels`: each kernel over its shapes, beside the library."""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from tests.native.backend import BackendError, library_path
from tools.bench.kernels import (
    ceilings,
    library,
    product_cases,
    report,
    row_cases,
    sequence_cases,
)
from tools.bench.kernels.case import Case
from tools.bench.kernels.device import KernelDevice
from tools.bench.kernels.models import CONTEXTS, DECODE_TOKENS, MODELS, PREFILL_TOKENS, Model

ROW_OPERATIONS = ("embed", "add_norm_quantise", "quantise", "swiglu_quantise", "norm_rope_store")
Build = Callable[[], Case]


def row_builds(device: KernelDevice, model: Model) -> Iterator[tuple[str, Build]]:
    for name in ROW_OPERATIONS:
        function = getattr(row_cases, name)
        for num_tokens in (*DECODE_TOKENS, PREFILL_TOKENS):
            yield name, partial(function, device, model, num_tokens, num_tokens < PREFILL_TOKENS)


def product_builds(device: KernelDevice, model: Model) -> Iterator[tuple[str, Build]]:
    for num_tokens in (*DECODE_TOKENS, PREFILL_TOKENS):
        given = (device, model, num_tokens, num_tokens < PREFILL_TOKENS)
        for layer in product_cases.LAYERS:
            yield "linear", partial(product_cases.linear, *given, layer)
        yield "experts", partial(product_cases.experts, *given)
        yield "route", partial(product_cases.route, *given)
        if num_tokens < PREFILL_TOKENS:
            yield "logits", partial(product_cases.logits, *given)


def sequence_builds(device: KernelDevice, model: Model) -> Iterator[tuple[str, Build]]:
    attention = partial(sequence_cases.attention, device, model)
    for context in CONTEXTS:
        for batch in (1, 16, 64):
            yield "attention", partial(attention, batch, 1, context)
    yield "attention", partial(attention, 1, PREFILL_TOKENS, PREFILL_TOKENS)
    for kind in sequence_cases.SAMPLING_KINDS:
        for num_rows in DECODE_TOKENS:
            yield "sample", partial(sequence_cases.sample, device, model, num_rows, kind)


def beside(case: Case) -> tuple[str, float | None]:
    """Name and microseconds of what the library does in the same place."""
    if case.library is None:
        return "", None
    try:
        return case.library.name, library.microseconds(case.library.calls)
    except RuntimeError as error:
        reason = str(error).splitlines()[0][:60]
        return f"{case.library.name}: {reason}", None


def measured(device: KernelDevice, model: str, case: Case, rates) -> report.Line:
    spent = device.microseconds(case.calls)
    name, library_us = beside(case)
    return report.line_of(model, case, spent, library_us, name, rates)


def measure_all(device: KernelDevice, options, rates) -> list[report.Line]:
    lines = []
    for key in options.model:
        model = MODELS[key]
        for builds in (row_builds, product_builds, sequence_builds):
            for name, build in builds(device, model):
                if options.only and name not in options.only:
                    continue
                lines.append(measured_or_none(device, model.name, name, build, rates))
                gc.collect()
                torch.cuda.empty_cache()
    return [line for line in lines if line is not None]


def measured_or_none(device, model: str, name: str, build: Build, rates) -> report.Line | None:
    """A kernel that refuses a shape is named on standard error and left out."""
    try:
        line = measured(device, model, build(), rates)
    except BackendError as error:
        print(f"{model} {name}: {error}", file=sys.stderr, flush=True)
        return None
    print("  ".join(line.cells()), flush=True)
    return line


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
    options = parser.parse_args()
    options.model = options.model or list(MODELS)
    return options


def opened_device() -> KernelDevice:
    """The CUDA device, or one line that says why there is none."""
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
    rates = ceilings.measure(device)
    print("\n".join(report.ceiling_lines(rates)), flush=True)
    lines = measure_all(device, options, rates)
    print(report.text_table(lines))
    if options.output is None:
        return
    command = " ".join(["python -m tools.bench.kernels", *sys.argv[1:]])
    options.output.mkdir(parents=True, exist_ok=True)
    given = (command, machine(), rates, lines)
    text = json.dumps(report.as_dict(*given), indent=1, ensure_ascii=False) + "\n"
    (options.output / "kernels.json").write_text(text, encoding="utf-8")
    (options.output / "kernels.md").write_text(report.markdown(*given), encoding="utf-8")


if __name__ == "__main__":
    main()
