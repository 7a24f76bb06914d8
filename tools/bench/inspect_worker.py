"""Reads and validates one checkpoint some times in a fresh process; prints the seconds."""

import ctypes
import json
import os
import sys
import time

from glm_engine.core import abi
from glm_engine.core.engine import EngineOptions, call, call_bare, options_struct
from glm_engine.core.libraries import load_engine_library

REPEATS = 9


def timed_text(library, operation: str, argument) -> tuple[float, bytes]:
    """Seconds of one call that gives a text, and the text."""
    text = abi.TextPointer()
    begin = time.perf_counter()
    call(library, operation, argument, ctypes.byref(text))
    seconds = time.perf_counter() - begin
    content = ctypes.string_at(library.engine_text_data(text), library.engine_text_size(text))
    call_bare(library, "engine_text_free", text)
    return seconds, content


def repeated(library, operation: str, argument) -> tuple[list[float], bytes]:
    runs = [timed_text(library, operation, argument) for _ in range(REPEATS)]
    return [seconds for seconds, _ in runs], runs[0][1]


def main() -> None:
    library = load_engine_library()
    directory = sys.argv[1]
    struct, alive = options_struct(library, EngineOptions(directory, device="cpu"))
    plan_seconds, plan = repeated(library, "engine_plan", ctypes.byref(struct))
    inspect_seconds, inspected = repeated(library, "engine_inspect", os.fsencode(directory))
    del alive
    report = json.loads(inspected)
    answer = {
        "plan_seconds": plan_seconds,
        "inspect_seconds": inspect_seconds,
        "num_shards": len(report["shards"]),
        "num_tensors": len(report["tensors"]),
        "num_parameters": json.loads(plan)["num_parameters"],
        "json_bytes": len(inspected),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
