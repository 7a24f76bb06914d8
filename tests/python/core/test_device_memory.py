"""The memory that a device has in all: the smallest GPU's, else the machine's or its group's."""

from types import SimpleNamespace

import pytest

from glm_engine.core import device_memory
from glm_engine.core.errors import BadInputError


class Driver:
    """A driver whose GPUs have these sizes; a GPU without one is refused."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def cuDeviceGet(self, handle, number):
        handle._obj.value = number
        return 0

    def cuDeviceTotalMem_v2(self, size, handle):
        found = self.sizes[handle.value]
        size._obj.value = found or 0
        return 0 if found else 101


@pytest.fixture
def gpus(monkeypatch):
    def have(*sizes):
        found = {"num_gpus": len(sizes), "driver": "libcuda.so.1"}
        monkeypatch.setattr("glm_engine.core.engine.find_gpus", lambda: found)
        loader = SimpleNamespace(**{**vars(device_memory.ctypes), "CDLL": lambda _: Driver(*sizes)})
        monkeypatch.setattr(device_memory, "ctypes", loader)

    return have


def test_the_smallest_gpu_counts(gpus):
    gpus(85_000_000_000, 80_000_000_000)
    assert device_memory.total_bytes("auto") == 80_000_000_000
    assert device_memory.total_bytes("cuda") == 80_000_000_000
    assert device_memory.total_bytes("cpu") == device_memory.machine_bytes()


def test_a_gpu_without_a_size_is_an_error(gpus):
    gpus(85_000_000_000, None)
    with pytest.raises(BadInputError, match="does not report the memory of GPU 1"):
        device_memory.total_bytes("auto")


def test_without_gpus_the_machine_counts(gpus):
    gpus()
    assert device_memory.total_bytes("auto") == device_memory.machine_bytes()


def test_the_tightest_group_limits_the_machine(tmp_path, monkeypatch):
    info, group = tmp_path / "meminfo", tmp_path / "cgroup"
    info.write_text("MemTotal:  1000 kB\nMemFree:  10 kB\n")
    group.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name, value in (("MEMORY_INFO", info), ("GROUP", group), ("GROUPS", tmp_path)):
        monkeypatch.setattr(device_memory, name, str(value))
    assert device_memory.machine_bytes() == 1_024_000
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    assert device_memory.machine_bytes() == 1_024_000
    (tmp_path / "a" / "memory.max").write_text("500000\n")
    assert device_memory.machine_bytes() == 500_000
    info.write_text("")
    with pytest.raises(BadInputError, match="expected a MemTotal line"):
        device_memory.machine_bytes()
