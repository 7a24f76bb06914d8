"""Planning one step of many decode rows: the scheduler's own code, timed inside the engine."""

import ctypes
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Protocol, cast

from tools.bench.processes import ROOT
from tools.bench.report import Bound, Figure, Section

if TYPE_CHECKING:
    from llvmlite.binding import ModuleRef

IR = ROOT / "build" / "lowered" / "x86-64-v3" / "debug.ll"
PROBE = "scheduler_measure_plan"
TRIPLE, CPU = "x86_64-pc-linux-gnu", "x86-64-v3"
NUM_STEPS, WARM_UP = 400, 20
NUM_ROWS, CONTEXT = 256, 8192
SHAPES = ((1, CONTEXT), (32, CONTEXT), (NUM_ROWS, 1024), (NUM_ROWS, CONTEXT))
LIMIT_MICROSECONDS = 150.0
MESSAGE_BYTES = 4096
METHOD = (
    "`Scheduler:plan` alone, timed in the engine's process by the monotonic clock, over 400 steps "
    "after 20 of warm-up: which rows run, their pages (16 tokens each, a new one every 16th step), "
    "slots, positions and the part of the page table that changed. The engine's debug code is "
    "compiled at -O3 with its invariant checks left in, so the release build does less."
)


class Probe(Protocol):
    """A function of the library: the status of its call."""

    def __call__(self, *arguments: object) -> int:
        """Plan steps of rows at a context, and write their times or a message."""


def keep_alone(module: "ModuleRef", name: str) -> None:
    """Hide every other function, so that what the named one does not call falls away."""
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"


def optimised_object(ir: str) -> bytes:
    """Object code of IR text, optimised as far as LLVM does."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    keep_alone(module, PROBE)
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=CPU, opt=3, reloc="pic", codemodel="default"
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    code: bytes = machine.emit_object(module)
    return code


def link(code: bytes, folder: Path) -> Path:
    """A shared library of one object."""
    (folder / "engine.o").write_bytes(code)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    words = ["-shared", "-o", "engine.so", "engine.o", "-ldl", "-lm", "-lpthread"]
    subprocess.run([*compiler, *words], cwd=folder, check=True)
    return folder / "engine.so"


def load_probe(path: Path) -> Probe:
    """The probe `scheduler_measure_plan` of a library with the engine's debug code."""
    probe = getattr(ctypes.CDLL(str(path)), PROBE)
    times = ctypes.POINTER(ctypes.c_int64)
    probe.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, times, ctypes.c_char_p]
    probe.restype = ctypes.c_int32
    return cast(Probe, probe)


def measure(probe: Probe, num_rows: int, context: int) -> list[float]:
    """Microseconds of each planned step after the warm-up."""
    times = (ctypes.c_int64 * (WARM_UP + NUM_STEPS))()
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    status = probe(num_rows, context, len(times), times, message)
    if status != 0:
        raise RuntimeError(f"{PROBE} gave status {status}: {message.value.decode()}")
    return [time / 1000 for time in times[WARM_UP:]]


def measure_all() -> dict[tuple[int, int], list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        path = link(optimised_object(IR.read_text(encoding="utf-8")), Path(folder))
        probe = load_probe(path)
        return {shape: measure(probe, *shape) for shape in SHAPES}


def figure(shape: tuple[int, int], times: list[float]) -> Figure:
    name = f"plan {shape[0]} decode rows, contexts of {shape[1]:,}"
    tail = quantiles(times, n=100)[98]
    note = f"median; 99th percentile {tail:.1f} µs"
    if shape == (NUM_ROWS, CONTEXT):
        return Figure(name, median(times), "µs", Bound.AT_MOST, LIMIT_MICROSECONDS, note)
    return Figure(name, median(times), "µs", note=note)


def run() -> Section:
    """Times of planning for each shape; the largest has a limit."""
    measured = measure_all()
    figures = tuple(figure(shape, times) for shape, times in measured.items())
    series = {f"{rows} of {context:,}": times for (rows, context), times in measured.items()}
    return Section("planning", "Planning one step", METHOD, figures, {"microseconds": series})
