"""Where the engine looks for NVIDIA's driver, and when it says that a GPU is here.

Each question is asked in a process of its own: a driver that was opened stays.
"""

import json
import os
import subprocess
import sys

import pytest

from glm_engine.core.errors import Status
from tests.engine.probes import DEBUG_LIBRARY, ROOT
from tests.nvidia_driver import SOURCE, write_driver

FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib64",
    "run/opengl-driver/lib",
    "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
)
ASK = """
import ctypes, json, sys
from glm_engine.core import abi
library, root = ctypes.CDLL(sys.argv[1]), sys.argv[2]
message, count = abi.Message(), ctypes.c_int32(-1)
status = library.device_find_gpus(root.encode(), ctypes.byref(count), ctypes.byref(message))
print(json.dumps([status, count.value, message.text.decode()]))
"""


def found_below(root):
    """Status, number of GPUs and message of the probe, for files below `root` alone."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(DEBUG_LIBRARY), str(root)],
        cwd=ROOT / "python",
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_driver_is_found_where_systems_keep_it(tmp_path, folder):
    write_driver(tmp_path / folder, num_gpus=3)
    assert found_below(tmp_path) == [Status.GLM_OK, 3, ""]


def test_nothing_is_no_gpu(tmp_path):
    assert found_below(tmp_path) == [Status.GLM_OK, 0, ""]


@pytest.mark.parametrize(("status", "num_gpus"), [(100, 0), (0, 0)])
def test_a_driver_without_a_gpu_is_no_gpu_unless_device_files_say_otherwise(
    tmp_path, status, num_gpus
):
    path = write_driver(tmp_path / FOLDERS[0], status, num_gpus)
    assert found_below(tmp_path) == [Status.GLM_OK, 0, ""]
    files = write_device_file(tmp_path, "dev/nvidiactl")
    refused, count, message = found_below(tmp_path)
    assert (refused, count) == (Status.GLM_NOT_SUPPORTED, 0)
    assert f"found an NVIDIA driver ({files}), but {path} reports no GPU" in message


def write_device_file(root, name):
    (root / name).parent.mkdir(parents=True)
    (root / name).write_bytes(b"")
    return root / name


@pytest.mark.parametrize("name", ["dev/nvidiactl", "proc/driver/nvidia/version"])
def test_device_files_without_the_library_refuse(tmp_path, name):
    write_device_file(tmp_path, name)
    status, count, message = found_below(tmp_path)
    assert (status, count) == (Status.GLM_NOT_SUPPORTED, 0)
    assert f"found an NVIDIA driver ({tmp_path / name}), but not libcuda.so.1" in message
    assert all(f"/{folder}" in message for folder in FOLDERS)
    assert message.endswith("; use device cpu to run on the CPU")


def test_a_driver_that_fails_refuses(tmp_path):
    path = write_driver(tmp_path / FOLDERS[3], status=999)
    status, count, message = found_below(tmp_path)
    assert (status, count) == (Status.GLM_NOT_SUPPORTED, 0)
    assert f"the NVIDIA driver {path} failed with CUDA error 999" in message


def test_a_library_that_is_no_driver_refuses(tmp_path):
    write_driver(tmp_path / FOLDERS[2], source="int answer(void) {{ return 42; }}")
    status, _, message = found_below(tmp_path)
    assert status == Status.GLM_NOT_SUPPORTED
    assert "libcuda.so.1 is not an NVIDIA driver" in message


CHOOSE = "from glm_engine.core.engine import find_gpus; print(find_gpus()['device'])"
WITHOUT_ATTRIBUTES = SOURCE.replace("cuDeviceGetAttribute", "cuSomethingElse")


def chosen_with(driver):
    """The kind of device that `auto` means where this driver is the loader's first."""
    done = subprocess.run(
        [sys.executable, "-c", CHOOSE],
        cwd=ROOT / "python",
        env={**os.environ, "LD_LIBRARY_PATH": str(driver.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("capability", "kind"),
    [
        ((7, 5), "futhark"),
        ((8, 0), "futhark"),
        ((9, 0), "cuda"),
        ((10, 0), "futhark"),
        ((12, 0), "futhark"),
    ],
)
def test_auto_means_the_device_whose_kernels_the_gpu_runs(tmp_path, capability, kind):
    assert chosen_with(write_driver(tmp_path, capability=capability)) == kind


def test_a_driver_that_names_no_capability_runs_futharks_program(tmp_path):
    assert chosen_with(write_driver(tmp_path, source=WITHOUT_ATTRIBUTES)) == "futhark"
