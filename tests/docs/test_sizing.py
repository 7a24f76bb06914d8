"""The table of sizes in the documents is what `glm plan` says."""

import json
import re
import subprocess
import sys

import pytest

from tests.docs.documents import ROOT
from tests.server.serving import ENVIRONMENT

LIBRARIES = ("libglm_cuda_plan.so", "libglm_cuda.so")
ROW = re.compile(r"^\| (\S+) \| (\d+) GB \| (\d) \S (\d+) GB \| ([\d,]+) tokens \| (\d+) \|$", re.M)
ROWS = ROW.findall((ROOT / "docs" / "models.md").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(
    not any((ROOT / "build" / name).exists() for name in LIBRARIES),
    reason="no library that knows the sizes of GPUs is built",
)


def test_there_are_rows():
    assert len(ROWS) == 4


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[2]} x {row[3]}")
def test_a_row_is_what_the_plan_says(row):
    model, weights, count, memory, tokens, requests = row
    command = [sys.executable, "-m", "glm_engine", "plan", model.lower(), "--json"]
    command += ["--device", "cuda", "--device-memory", f"{memory}GB"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, check=True)
    plan = json.loads(done.stdout)
    assert plan["fits"]
    assert plan["world_size"] == int(count)
    assert round(plan["checkpoint_bytes"] / 1e9) == int(weights)
    assert plan["tokens_of_context"] == int(tokens.replace(",", ""))
    assert plan["concurrent_requests"] == int(requests)
