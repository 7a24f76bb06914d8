"""`python -m tools.bench.kernels` where there is no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_gpu_it_says_so_in_one_line():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.kernels"],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernels: ")
    assert any(cause in line for cause in ("got none", "is not built"))
