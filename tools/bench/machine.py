"""What the figures were measured on: processor, memory, versions, commit."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tools.bench.processes import ROOT

PACKAGES = ("numpy", "torch", "transformers", "llvmlite")


def proc_field(path: str, name: str) -> str:
    """The value of the first line `name: value` of a file of /proc."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    raise ValueError(f"{path} has no field {name!r}")


def is_installed(name: str) -> bool:
    return find_spec(name) is not None


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return versions


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit() -> str:
    """The commit that is checked out, and whether tracked files differ from it."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/benchmarks")
    return git("rev-parse", "HEAD") + (" with changes" if changed else "")


def num_cores() -> int:
    return len(os.sched_getaffinity(0))


def describe() -> dict:
    """Processor, cores, memory, system, versions, commit, date and load of this machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "processor": proc_field("/proc/cpuinfo", "model name"),
        "cores": num_cores(),
        "memory_gib": round(int(proc_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[0], 2),
        "versions": package_versions(),
    }
