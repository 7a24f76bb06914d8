"""Peak memory of a smoke over what its imports take."""

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Sequence

from glm_engine.core.layout import CAPITALS
from tools.bench.processes import Answer, ask_once
from tools.bench.report import Bound, Figure, Section, proc_field

SMOKE = ["smoke", "--device", "cpu", "--json"]
ALLOWANCE_BYTES = 150e6
MEGABYTE = 1e6
METHOD = (
    "VmHWM of a fresh process that runs `glm smoke --device cpu --json`, less VmHWM of a fresh "
    "process that imports the same Python modules and nothing else. The limit is the checkpoint's "
    "files, the pool of KV pages as `get_engine_info` states it, and 150 MB."
)


def peak_bytes() -> int:
    """VmHWM: the most memory that this process ever held."""
    return int(proc_field("/proc/self/status", "VmHWM").split()[0]) * 1024


def smoke() -> Answer:
    """Run `glm smoke`; its report, its peak and the modules that it imported."""
    from glm_engine.cli.command_line import main as run_glm

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = run_glm(SMOKE)
    if status:
        raise RuntimeError(f"glm smoke ended with status {status}: {output.getvalue()}")
    report = json.loads(output.getvalue())
    return {"peak": peak_bytes(), "report": report, "modules": sorted(sys.modules)}


def import_all(modules: Sequence[str]) -> Answer:
    """Import the modules of a smoke and do nothing else."""
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return {"peak": peak_bytes()}


def run() -> Section:
    """Megabytes that a smoke adds to its imports."""
    smoked = ask_once(smoke)
    imported = ask_once(import_all, smoked["modules"])
    series = {
        "imports": imported["peak"],
        "smoke": smoked["peak"],
        "checkpoint": sum(path.stat().st_size for path in CAPITALS.glob("*.safetensors")),
        "pool": smoked["report"]["kv_bytes"],
        "allowance": ALLOWANCE_BYTES,
    }
    limit = series["checkpoint"] + series["pool"] + ALLOWANCE_BYTES
    used = Figure(
        "peak memory of a smoke over its imports",
        (series["smoke"] - series["imports"]) / MEGABYTE,
        "MB",
        Bound.AT_MOST,
        limit / MEGABYTE,
        f"{series['smoke'] / MEGABYTE:.1f} MB, imports alone {series['imports'] / MEGABYTE:.1f} MB",
    )
    return Section("memory", "Peak memory", METHOD, (used,), series)
