"""Planning one step of many decode rows: the scheduler's own code, timed inside the engine."""

import ctypes
from collections.abc import Callable
from statistics import median, quantiles
from typing import TYPE_CHECKING

from tools.bench.processes import ROOT
from tools.bench.report import Bound, Figure, Section

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine, ModuleRef

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


def keep_alone(module: "ModuleRef", name: str) -> None:
    """Hide every other function, so that what the named one does not call falls away."""
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"


def optimised(ir: str) -> "ExecutionEngine":
    """The code of IR text, optimised as far as LLVM does, in this process."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    keep_alone(module, PROBE)
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=CPU, opt=3, jit=True)
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return llvm.create_mcjit_compiler(module, machine)


def measure(probe: Callable[..., int], num_rows: int, context: int) -> list[float]:
    """Microseconds of each planned step after the warm-up."""
    times = (ctypes.c_int64 * (WARM_UP + NUM_STEPS))()
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    status = probe(num_rows, context, len(times), times, message)
    if status != 0:
        raise RuntimeError(f"{PROBE} gave status {status}: {message.value.decode()}")
    return [time / 1000 for time in times[WARM_UP:]]


def measure_all() -> dict[tuple[int, int], list[float]]:
    code = optimised(IR.read_text(encoding="utf-8"))
    number, times = ctypes.c_int32, ctypes.POINTER(ctypes.c_int64)
    kind = ctypes.CFUNCTYPE(number, number, number, number, times, ctypes.c_char_p)
    probe = kind(code.get_function_address(PROBE))
    return {shape: measure(probe, *shape) for shape in SHAPES}


def figure(shape: tuple[int, int], times: list[float]) -> Figure:
    name = f"plan {shape[0]} decode rows, contexts of {shape[1]:,}"
    tail = quantiles(times, n=100)[98]
    note = f"median; 99th percentile {tail:.1f} µs"
    limit = LIMIT_MICROSECONDS if shape == (NUM_ROWS, CONTEXT) else None
    return Figure(name, median(times), "µs", Bound.AT_MOST, limit, note)


def run() -> Section:
    """Times of planning for each shape; the largest has a limit."""
    measured = measure_all()
    figures = tuple(figure(shape, times) for shape, times in measured.items())
    series = {f"{rows} of {context:,}": times for (rows, context), times in measured.items()}
    return Section("planning", "Planning one step", METHOD, figures, {"microseconds": series})
