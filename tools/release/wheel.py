"""Makes the wheel: hatchling fills it, auditwheel finds the tag that its symbols allow."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.utils import get_reproducible_timestamp

from tools.release.contents import ROOT, VARIABLE

FOLDER = ROOT / "build" / "wheel"
FOUND_AT_RUN_TIME = ("libcublasLt.so.*", "libcuda.so.*", "libnccl.so.*", "libnvrtc.so.*")


def run_module(devices: Iterable[str], *arguments: str | Path) -> None:
    """Run one module of this Python with the time that archives state; raise where it fails."""
    variables = os.environ | {
        "SOURCE_DATE_EPOCH": str(get_reproducible_timestamp()),
        VARIABLE: " ".join(devices),
    }
    command = [sys.executable, "-m", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, env=variables, check=True)


def make_wheel(devices: Iterable[str], folder: Path = FOLDER) -> Path:
    """Write the wheel with these devices into `folder`, emptied first, and return its path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    exclusions = [f"--exclude={name}" for name in FOUND_AT_RUN_TIME]
    repair = ["auditwheel", "repair", "--patcher=none", "--wheel-dir", str(folder), *exclusions]
    with TemporaryDirectory() as untagged:
        run_module(devices, "hatchling", "build", "--target", "wheel", "--directory", untagged)
        run_module(devices, *repair, *Path(untagged).glob("*.whl"))
    (wheel,) = folder.glob("*.whl")
    return wheel
