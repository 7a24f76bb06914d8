"""Peak memory of a smoke over what its imports take."""

import json

from tools.bench.processes import ask_once
from tools.bench.prompts import CAPITALS
from tools.bench.report import Bound, Figure, Section

WORKER = "tools.bench.memory_worker"
ALLOWANCE_BYTES = 150e6
MEGABYTE = 1e6
METHOD = (
    "VmHWM of a fresh process that runs `glm smoke --device cpu --json`, less VmHWM of a fresh "
    "process that imports the same Python modules and nothing else. The limit is the checkpoint's "
    "files, the pool of KV pages as `get_engine_info` states it, and 150 MB."
)


def checkpoint_bytes() -> int:
    return sum(path.stat().st_size for path in CAPITALS.glob("*.safetensors"))


def run() -> Section:
    """Megabytes that a smoke adds to its imports."""
    smoke = ask_once(WORKER)
    imported = ask_once(WORKER, json.dumps(smoke["modules"]))
    pool = smoke["report"]["kv_bytes"]
    limit = checkpoint_bytes() + pool + ALLOWANCE_BYTES
    note = f"{smoke['peak'] / MEGABYTE:.1f} MB, imports alone {imported['peak'] / MEGABYTE:.1f} MB"
    used = Figure(
        "peak memory of a smoke over its imports",
        (smoke["peak"] - imported["peak"]) / MEGABYTE,
        "MB",
        Bound.AT_MOST,
        limit / MEGABYTE,
        note,
    )
    series = {
        "imports": imported["peak"],
        "smoke": smoke["peak"],
        "checkpoint": checkpoint_bytes(),
        "pool": pool,
        "allowance": ALLOWANCE_BYTES,
    }
    return Section("memory", "Peak memory", METHOD, (used,), series)
