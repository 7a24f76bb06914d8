"""Writes a library that answers as NVIDIA's driver does where the engine asks it for GPUs."""

import os
import subprocess
from pathlib import Path

import pytest

from glm_engine.core.engine import find_gpus
from glm_engine.core.errors import EngineError

LIBRARY = "libcuda.so.1"
DEVICE_FILES = ("/dev/nvidiactl", "/proc/driver/nvidia/version")
SOURCE = """
#include <string.h>
int cuInit(unsigned flags) {{ return flags == 0 ? {status} : 1; }}
int cuDeviceGetCount(int *count) {{ *count = {num_gpus}; return 0; }}
int cuDriverGetVersion(int *version) {{ *version = {version}; return 0; }}
int cuDeviceGetName(char *name, int size, int device) {{
  strncpy(name, "H200", size);
  return device;
}}
int cuDeviceGetAttribute(int *value, int attribute, int device) {{
  *value = attribute == 75 ? {major} : {minor};
  return device;
}}
"""


def write_driver(
    folder: Path,
    status: int = 0,
    num_gpus: int = 1,
    version: int = 13000,
    source: str = SOURCE,
    capability: tuple[int, int] = (9, 0),
) -> Path:
    """Compile libcuda.so.1 of a CUDA `version` into `folder`: cuInit gives `status`."""
    folder.mkdir(parents=True, exist_ok=True)
    code = folder / "driver.c"
    major, minor = capability
    answers = {"status": status, "num_gpus": num_gpus, "version": version}
    code.write_text(source.format(major=major, minor=minor, **answers))
    compiler = os.environ.get("CC") or "cc"
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([compiler, *flags, str(code), "-o", str(folder / LIBRARY)], check=True)
    code.unlink()
    return folder / LIBRARY


def skip_where_a_gpu_is() -> None:
    """Skip a test of a machine without a GPU where `auto` means CUDA or refuses."""
    try:
        found = find_gpus()
    except EngineError as error:
        pytest.skip(f"device auto refuses: {error}")
    if found["num_gpus"]:
        pytest.skip(f"{found['driver']} sees a GPU: auto does not mean cpu")
