"""What devices of GPUs say when there is none, when one is lost and when its memory is used up."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from glm_engine.verify.device import F32, Backend, BackendError, Device, Matrix, library_path
from glm_engine.verify.header import constants
from glm_engine.verify.operations import activation

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
LOSING_FUTHARK = """
import numpy as np
from glm_engine.verify.device import Backend, BackendError, Device
from tests.engine.test_cuda import break_the_device
device = Device(Backend("futhark"), 1)
rows = np.ones((3, 8), np.float32)
fields = {"num_tokens": 3, "width": 8, "input": device.activation(rows)}
fields |= {"codes": device.empty(24), "row_scale": device.empty(12)}
device.run("quantise", **fields)
break_the_device()
for call in (lambda: device.run("quantise", **fields),) * 2 + (device.synchronise,):
    try:
        call()
        print("no error")
    except BackendError as error:
        print(error)
device.close()
"""


def run_alone(script: str, kind: str = "cuda", **variables: str) -> list[str]:
    if not library_path(kind).exists():
        pytest.skip(f"libglm_{kind}.so is not built: tools/develop --with cuda scons {kind}")
    paths = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths} | variables,
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


def test_a_lost_context_of_futhark_says_so_ever_after(request):
    if request.config.getoption("--device-kind") != "futhark":
        pytest.skip("a context is lost with --device-kind futhark alone")
    first, *later = run_alone(LOSING_FUTHARK, kind="futhark")
    assert first.startswith("status 7: ")
    assert "launch failure" in first
    assert len(later) == 2
    assert all(line.startswith("status 7: ") for line in later)


def allocate_without_end(device: Device, num_bytes: int) -> None:
    while True:
        device.allocate(num_bytes)


def fill(device: Device, num_bytes: int) -> None:
    """Allocates blocks of this size until the device refuses."""
    with pytest.raises(BackendError) as caught:
        allocate_without_end(device, num_bytes)
    assert caught.value.status == constants()["GLM_OUT_OF_MEMORY"]


@contextmanager
def without_memory(device: Device, kind: str) -> Iterator[None]:
    """Less than 64 MiB is left: of a GPU's memory, or of what the process may map."""
    num_kept, limits = len(device.blocks), resource.getrlimit(resource.RLIMIT_AS)
    if kind == "futhark":
        fill(device, 1 << 30)
        fill(device, 1 << 26)
    else:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 26), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)
    for block in device.blocks[num_kept:]:
        device.check(device.table.release(device.handle, block))
    del device.blocks[num_kept:]


def refuse_a_result(kind: str) -> None:
    """The body of a process of its own: a product finds no memory, and is right afterwards."""
    num_rows, weight = 20_000, np.eye(4_000, 8, dtype=np.float32)
    values = np.arange(8 * num_rows, dtype=np.float32).reshape(num_rows, 8)
    with Backend(kind).device() as device:
        placed, output = Matrix(device, weight, F32), device.empty(4 * num_rows * len(weight))
        fields = {"num_tokens": num_rows, "matrix": placed.pointer, "output": output}
        fields["input"] = activation(device, values)
        with without_memory(device, kind):
            with pytest.raises(BackendError) as caught:
                device.run("linear", **fields)
            print(caught.value)
        device.run("linear", **fields)
        result = device.download(output, (num_rows, len(weight)), np.float32)
        np.testing.assert_array_equal(result, values @ weight.T)


def test_a_result_that_finds_no_memory_is_refused(request):
    kind = request.config.getoption("--device-kind")
    if kind == "cuda":
        pytest.skip("operations allocate their results with --device-kind cpu or futhark alone")
    code = f"from tests.native.test_gpu_faults import refuse_a_result; refuse_a_result({kind!r})"
    (line,) = run_alone(code, kind)
    assert re.fullmatch(
        r"status 3: linear: Failed to allocate memory.*\. Attempted allocation: \d+ bytes.*", line
    )
    assert "null" not in line
