"""How much memory a device has in all, asked of the system and the driver without the engine."""

import ctypes
import re
from pathlib import Path

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import text_or_nothing

MEMORY_INFO, GROUP, GROUPS = "/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"
MEMORY_ROW = re.compile(r"^(\w+): +(\d+) kB$", re.M)


def total_bytes(device: str) -> int:
    """Return the bytes of the smallest GPU, or of this machine where the device is the CPU."""
    from glm_engine.core.engine import find_gpus

    if device == "cpu":
        return machine_bytes()
    found = find_gpus()
    if not found["num_gpus"]:
        return machine_bytes()
    driver = ctypes.CDLL(found["driver"])
    return min(gpu_bytes(driver, number) for number in range(found["num_gpus"]))


def gpu_bytes(driver: ctypes.CDLL, number: int) -> int:
    handle, size = ctypes.c_int(), ctypes.c_size_t()
    if driver.cuDeviceGet(ctypes.byref(handle), number) or driver.cuDeviceTotalMem_v2(
        ctypes.byref(size), handle
    ):
        raise BadInputError(f"the NVIDIA driver does not report the memory of GPU {number}")
    return size.value


def machine_bytes() -> int:
    """Return MemTotal, or the smallest limit of the control groups that hold this process."""
    total = memory_info().get("MemTotal")
    if total is None:
        raise BadInputError(f"{MEMORY_INFO}: expected a MemTotal line")
    return min(total, *group_limits())


def memory_info() -> dict[str, int]:
    """Return the bytes that the system states, by name."""
    rows = MEMORY_ROW.findall(text_or_nothing(MEMORY_INFO))
    return {name: 1024 * int(number) for name, number in rows}


def group_limits() -> list[int]:
    """Return the limits of the control group of this process and of all above it."""
    lines = text_or_nothing(GROUP).splitlines()
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = Path(GROUPS, own.strip("/"))
    texts = [text_or_nothing(one / "memory.max").strip() for one in (folder, *folder.parents)]
    return [int(text) for text in texts if text.isdecimal()] or [2**63 - 1]
