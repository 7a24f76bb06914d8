"""Runs long calls of C in a thread of their own, so that Ctrl-C takes effect at once."""

import importlib
import sys
import threading
import time

from glm_engine.core.console import bytes_progress, coloured, cut_line, tell, world_size_choice
from glm_engine.core.engine import Engine
from glm_engine.core.interrupts import interrupted_afterwards

NEEDED_ONCE_LOADED = "numpy"
STATE = {"loading": False}


def is_loading():
    """Say whether a thread is still inside a long call."""
    return STATE["loading"]


def say(line):
    """Print a warning on standard error."""
    print(coloured(f"glm: {line}", "warning", sys.stderr), file=sys.stderr, flush=True)


def load_engine(options, quiet=False, warn=say, inform=tell):
    """Return (engine, seconds); raise what the engine fails with.

    `inform` takes the line that says how many GPUs the engine chose, `warn` the line that says
    that memory cut the context.
    """
    began = time.monotonic()
    with bytes_progress(quiet) as show:
        if show:
            options.progress = lambda done, total, stage: show(done, total, f"loading {stage}")
        engine = in_thread(lambda: Engine(options), meanwhile=import_needed)
    info = engine.info()
    if not (quiet or options.world_size or info["device"].startswith("CPU")):
        inform(world_size_choice(info["world_size"]))
    if not quiet and (line := cut_line(info)):
        warn(line)
    return engine, time.monotonic() - began


def import_needed():
    """Import the module that the engine's events need; Ctrl-C waits until that is done."""
    if threading.current_thread() is threading.main_thread():
        interrupted_afterwards(lambda: importlib.import_module(NEEDED_ONCE_LOADED))
    else:
        importlib.import_module(NEEDED_ONCE_LOADED)


def in_thread(make, meanwhile=lambda: None):
    """Run `make` in a thread and return its value; Ctrl-C does not wait for the thread."""
    outcome = {}

    def run():
        try:
            outcome["value"] = make()
        except BaseException as error:
            outcome["error"] = error
        finally:
            STATE["loading"] = False

    STATE["loading"] = True
    thread = threading.Thread(target=run, name="glm-load", daemon=True)
    thread.start()
    meanwhile()
    while thread.is_alive():
        thread.join(0.1)
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]
