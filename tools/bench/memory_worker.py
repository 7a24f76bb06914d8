"""A fresh process that imports what a smoke imports, or runs one, and prints its peak memory."""

import contextlib
import importlib
import io
import json
import sys

from tools.bench.machine import proc_field

SMOKE = ["smoke", "--device", "cpu", "--json"]


def peak_bytes() -> int:
    """VmHWM: the most memory that this process ever held."""
    return int(proc_field("/proc/self/status", "VmHWM").split()[0]) * 1024


def smoke() -> dict:
    """Run `glm smoke`; its report, its peak and the modules that it imported."""
    from glm_engine.cli.command_line import main as run_glm

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = run_glm(SMOKE)
    if status:
        raise RuntimeError(f"glm smoke ended with status {status}: {output.getvalue()}")
    report = json.loads(output.getvalue())
    return {"peak": peak_bytes(), "report": report, "modules": sorted(sys.modules)}


def imports(names: list[str]) -> dict:
    """Import the modules of a smoke and do nothing else."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return {"peak": peak_bytes(), "missing": sorted(set(names) - set(sys.modules))}


def main() -> None:
    names = sys.argv[1:]
    print(json.dumps(imports(json.loads(names[0])) if names else smoke()))


if __name__ == "__main__":
    main()
