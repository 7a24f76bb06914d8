"""Index and headers of a checkpoint of GLM-4.7-FP8's size, read and validated."""

import ctypes
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from glm_engine.core import abi
from glm_engine.core.engine import EngineOptions, call, call_bare, options_struct
from glm_engine.core.layout import CONFIGS
from glm_engine.core.libraries import load_engine_library
from tools.bench.processes import Answer, ask_once
from tools.bench.report import Bound, Figure, Section
from tools.checkpoint.layout import LayoutOptions
from tools.checkpoint.shards import write_model
from tools.checkpoint.synthetic import GLM_4_7_FP8_SHARDS

GLM_4_7_FP8 = CONFIGS / "glm-4.7-fp8.json"
NUM_TENSORS = 87_553
LIMIT_SECONDS = 0.5
REPEATS = 9
METHOD = (
    "A sparse checkpoint with GLM-4.7-FP8's own names, dtypes and shapes (93 shards of full length "
    "whose data takes no space). The figure is one `engine_plan` in a fresh process: config and "
    "index parsed, 93 shards mapped, their headers parsed, offsets and overlaps checked, every "
    "tensor of the config found and its dtype and shape compared, the plan made; median of 9 with "
    "the headers in the page cache. `engine_inspect` adds the check of scales (which in a sparse "
    "file ends at the first zero of each tensor) and the JSON text of all tensors."
)


def timed_text(library: ctypes.CDLL, operation: str, argument: Any) -> tuple[list[float], bytes]:
    """Seconds of each of some calls that give a text, and the text."""
    text, times = abi.TextPointer(), []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call(library, operation, argument, ctypes.byref(text))
        times.append(time.perf_counter() - begin)
        content = ctypes.string_at(library.engine_text_data(text), library.engine_text_size(text))
        call_bare(library, "engine_text_free", text)
    return times, content


def read(folder: str) -> Answer:
    """Read and validate a checkpoint some times; the seconds, and what was found."""
    library = load_engine_library()
    struct, alive = options_struct(library, EngineOptions(folder, device="cpu"))
    plan_seconds, _ = timed_text(library, "engine_plan", ctypes.byref(struct))
    inspect_seconds, inspected = timed_text(library, "engine_inspect", os.fsencode(folder))
    del alive
    report = json.loads(inspected)
    return {
        "plan_seconds": plan_seconds,
        "inspect_seconds": inspect_seconds,
        "num_shards": len(report["shards"]),
        "num_tensors": len(report["tensors"]),
        "json_bytes": len(inspected),
    }


def measure() -> Answer:
    """The worker's seconds for a checkpoint written for it."""
    with tempfile.TemporaryDirectory() as folder:
        config = json.loads(GLM_4_7_FP8.read_text(encoding="utf-8"))
        options = LayoutOptions(with_prediction_layers=False)
        write_model(Path(folder), config, GLM_4_7_FP8_SHARDS, None, options)
        answer = ask_once(read, folder)
    found = (answer["num_shards"], answer["num_tensors"])
    if found != (GLM_4_7_FP8_SHARDS, NUM_TENSORS):
        raise ValueError(f"read {found}, expected {(GLM_4_7_FP8_SHARDS, NUM_TENSORS)}")
    return answer


def run() -> Section:
    """Seconds for reading and validating, and for the listing as JSON."""
    answer = measure()
    plan, inspected = answer["plan_seconds"], answer["inspect_seconds"]
    read = Figure(
        f"read and validate {GLM_4_7_FP8_SHARDS} shards, {NUM_TENSORS:,} tensors",
        median(plan),
        "s",
        Bound.AT_MOST,
        LIMIT_SECONDS,
        f"first {plan[0]:.3f} s, slowest {max(plan):.3f} s",
    )
    listing = Figure(
        "the same, scales looked at and listed as JSON",
        median(inspected),
        "s",
        note=f"{answer['json_bytes'] / 1e6:.1f} MB of JSON",
    )
    series = {"engine_plan": plan, "engine_inspect": inspected}
    return Section("index", "Index and headers", METHOD, (read, listing), series)
