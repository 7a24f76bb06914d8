"""Runs `glm deploy` as a user would and reads its logs."""

import json
import os
import subprocess
import sys
from pathlib import Path

from glm_engine.deploy.deployment import Deployment
from glm_engine.deploy.gpus import parse_gpu
from glm_engine.deploy.job import Job

ROOT = Path(__file__).resolve().parents[3]
PATHS = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
DEPLOY = (sys.executable, "-m", "glm_engine", "deploy")
HERE = ("--local", "--device", "cpu")
CAPITALS = ROOT / "checkpoints" / "capitals"
WHEEL_BYTES = b"what Modal would be sent" * 1000


def deploy(*arguments, **variables):
    return subprocess.run(
        [*DEPLOY, *map(str, arguments)],
        cwd=ROOT,
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


def events(text):
    """Return the logged objects of a standard error, in their order."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def wheel_in(folder):
    """Write a file that is sent as a wheel and looked into by nobody."""
    path = Path(folder) / "glm_engine-0-py3-none-any.whl"
    path.write_bytes(WHEEL_BYTES)
    return path


def deployment(folder, job=None, gpu="H100:1", **values):
    return Deployment(job or Job("capitals"), parse_gpu(gpu), wheel_in(folder), **values)
