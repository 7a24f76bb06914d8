"""Makes the wheel: hatchling fills it, auditwheel finds the tag that its symbols allow."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.utils import get_reproducible_timestamp

from tools.release.contents import ROOT, VARIABLE

FOLDER = ROOT / "build" / "wheel"
FOUND_AT_RUN_TIME = ("libcublasLt.so.*", "libnccl.so.*")


def run_module(devices, *arguments):
    """Run one module of this Python with the time that archives state; raise where it fails."""
    variables = os.environ | {
        "SOURCE_DATE_EPOCH": str(get_reproducible_timestamp()),
        VARIABLE: " ".join(devices),
    }
    command = [sys.executable, "-m", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, env=variables, check=True)


def make_wheel(devices, folder=FOLDER):
    """Write the wheel with these devices into `folder`, as its only one, and return its path."""
    for old in folder.glob("*.whl"):
        old.unlink()
    exclusions = [f"--exclude={name}" for name in FOUND_AT_RUN_TIME]
    repair = ["auditwheel", "repair", "--patcher=none", "--wheel-dir", folder, *exclusions]
    with TemporaryDirectory() as untagged:
        run_module(devices, "hatchling", "build", "--target", "wheel", "--directory", untagged)
        run_module(devices, *repair, *Path(untagged).glob("*.whl"))
    (wheel,) = folder.glob("*.whl")
    return wheel
