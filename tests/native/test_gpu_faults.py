"""What the CUDA device says when there is none and when it is lost, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from glm_engine.verify.device import library_path

ROOT = Path(__file__).resolve().parents[2]
OPENING = """
from glm_engine.verify.device import Backend, BackendError
try:
    with Backend("cuda").device():
        print("opened")
except BackendError as error:
    print(error)
"""
LOSING = """
from glm_engine.verify.device import Backend, BackendError, Device
device = Device(Backend("cuda"), 1)
names = ("page_table", "source_rows", "table_row", "row_offset", "position_limit", "states")
names += ("token_ids", "positions", "slots", "context_length", "position")
fields = {"num_rows": 1, "num_table_rows": 1, "page_size": 1, **dict.fromkeys(names, 1 << 20)}
device.run("begin_step", **fields)
for call in ("synchronise", "synchronise", "graph_begin"):
    try:
        device.check(getattr(device.table, call)(device.handle))
        print("no error")
    except BackendError as error:
        print(error)
device.table.device_close(device.handle)
"""


def run_alone(script: str, **variables: str) -> list[str]:
    if not library_path("cuda").exists():
        pytest.skip("libglm_cuda.so is not built: scons cuda makes it (tools/develop --with cuda)")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_gpu_is_one_line():
    (line,) = run_alone(OPENING, CUDA_VISIBLE_DEVICES="")
    assert line in (
        "status 4: device cuda: no NVIDIA driver found; install one, or use device cpu",
        "status 4: device cuda: no GPU found; use device cpu to run on the CPU",
    )


def test_a_lost_device_says_so_ever_after(request):
    if request.config.getoption("--device-kind") != "cuda":
        pytest.skip("a device is lost with --device-kind cuda alone")
    first, second, third = run_alone(LOSING)
    assert first.startswith("status 7: synchronise: cwCudaStreamSync: status")
    for line in (second, third):
        assert line.startswith("status 7: the device is lost: synchronise: cwCudaStreamSync")
