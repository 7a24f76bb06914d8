"""Memory of the device and of the process stays where it was after the first requests."""

import ctypes
import resource
from pathlib import Path

import pytest

from glm_engine.core.engine import Request, Sampling
from tests.devices import device_kind, num_devices
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tests.shapes import generator
from tools.bindings.wrappers import wrapper

VOCAB = 2048
WAVE = 100
NUM_REQUESTS = {"cpu": 600, "futhark": 1_000, "cuda": 10_000}
SETTLED_AFTER = {"cpu": 400, "futhark": 100, "cuda": 100}
SPLITS = [ONE_RANK, Split(2, ExpertLayout.EXPERT_PARALLEL)]
HOST_SLACK = 4 << 20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def free_device_bytes() -> list[int]:
    """Free memory of each GPU; none on the CPU device, whose memory is the process's."""
    if device_kind() == "cpu":
        return []
    cuda, free = wrapper("cudawrap"), []
    for device in reversed(range(num_devices(device_kind()))):
        number, total = ctypes.c_int64(), ctypes.c_int64()
        cuda.call("cwCudaSetDevice", device)
        cuda.call("cwCudaMemInfo", ctypes.byref(number), ctypes.byref(total))
        free.append(number.value)
    return free


def wave(number: int) -> list[Request]:
    random = generator("memory", number)
    return [
        Request(
            prompt=random.integers(0, VOCAB, int(random.integers(1, 30))).tolist(),
            max_tokens=int(random.integers(1, 6)),
            sampling=Sampling(temperature=float(index % 2), seed=index, num_logprobs=index % 3 - 1),
            ignore_eos=True,
        )
        for index in range(WAVE)
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_many_short_requests_leave_no_memory_behind(split, capsys):
    with open_engine(CAPITALS, split, max_batch=64, max_seq=64) as engine:
        settled, last = (sizes[device_kind()] // WAVE for sizes in (SETTLED_AFTER, NUM_REQUESTS))
        for number in range(settled):
            run_requests(engine, wave(number))
        device, host = free_device_bytes(), resident_bytes()
        for number in range(settled, last):
            run_requests(engine, wave(number))
        after, grown = free_device_bytes(), resident_bytes() - host
    with capsys.disabled():
        print(f"\nfree device memory {device}, then {after}; process grown {grown} bytes", end=" ")
    assert after == device
    assert grown <= HOST_SLACK
