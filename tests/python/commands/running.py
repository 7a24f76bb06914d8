"""Runs the commands of glm as a user would."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PATHS = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH"))))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
GLM = (sys.executable, "-m", "glm_engine")
CPU = ("--device", "cpu")
QUESTION = "The capital of France is"


def glm(*arguments, stdin=""):
    return subprocess.run(
        [*GLM, *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=240,
    )


def glm_json(*arguments, code=0, stdin=""):
    result = glm(*arguments, "--json", stdin=stdin)
    assert result.returncode == code, result.stderr
    return json.loads(result.stdout)


def refused(*arguments, code=2):
    """Run a command that must fail, and return its one line."""
    result = glm(*arguments)
    assert result.returncode == code, (result.stdout, result.stderr)
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("glm: ")
    assert "Traceback" not in result.stderr
    return result.stderr
