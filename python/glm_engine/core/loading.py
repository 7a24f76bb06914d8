"""Runs long calls of C in a thread of their own, so that Ctrl-C takes effect at once."""

import importlib
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from glm_engine.core.console import bytes_progress, coloured, cut_line, tell, world_size_choice
from glm_engine.core.engine import Engine
from glm_engine.core.interrupts import interrupted_afterwards
from glm_engine.core.reports import ANY_GPU, device_kind
from glm_engine.core.requests import EngineOptions

Made = TypeVar("Made")
NEEDED_ONCE_LOADED = "numpy"
LOADER = "glm-load"
NO_NATIVE_KERNELS = (
    "device auto chose futhark: the CUDA kernels are for GPUs of compute capability 9.0"
)


def is_loading() -> bool:
    """Say whether a thread is still inside a long call."""
    return any(thread.name == LOADER for thread in threading.enumerate())


def say(line: str) -> None:
    """Print a warning on standard error."""
    print(coloured(f"glm: {line}", "warning", sys.stderr), file=sys.stderr, flush=True)


def load_engine(
    options: EngineOptions,
    quiet: bool = False,
    warn: Callable[[str], None] = say,
    inform: Callable[[str], None] = tell,
) -> tuple[Engine, float]:
    """Return (engine, seconds); raise what the engine fails with.

    `inform` takes the line that says how many GPUs the engine chose, `warn` the lines that say
    that memory cut the context and that this kind of GPU was never tested.
    """
    began = time.monotonic()
    with bytes_progress(quiet) as show:
        if show:
            options.progress = lambda done, total, stage: show(done, total, f"loading {stage}")
        engine = in_thread(lambda: Engine(options), meanwhile=import_needed)
    info = engine.info()
    kind = device_kind(info["device"])
    if not quiet and options.device == "auto" and kind == ANY_GPU:
        inform(NO_NATIVE_KERNELS)
    if not (quiet or options.world_size or kind == "cpu"):
        inform(world_size_choice(info["world_size"]))
    if not quiet and (line := cut_line(info)):
        warn(line)
    if not quiet and kind == "cuda":
        from glm_engine.core.diagnosis import untested_gpu

        if line := untested_gpu():
            warn(line)
    return engine, time.monotonic() - began


def import_needed() -> None:
    """Import the module that the engine's events need; Ctrl-C waits until that is done."""
    if threading.current_thread() is threading.main_thread():
        interrupted_afterwards(lambda: importlib.import_module(NEEDED_ONCE_LOADED))
    else:
        importlib.import_module(NEEDED_ONCE_LOADED)


def in_thread(make: Callable[[], Made], meanwhile: Callable[[], object] = lambda: None) -> Made:
    """Run `make` in a thread and return its value; Ctrl-C does not wait for the thread."""
    thread, made = started(make, LOADER)
    meanwhile()
    while thread.is_alive():
        thread.join(0.1)
    return made.result()


def started(make: Callable[[], Made], name: str) -> "tuple[threading.Thread, Future[Made]]":
    """Run `make` in a thread that the end of the process does not wait for."""
    outcome: Future[Made] = Future()

    def run() -> None:
        try:
            outcome.set_result(make())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread, outcome
