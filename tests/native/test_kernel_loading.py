"""Kernels are loaded at once, before ranks wait for each other, in processes of their own.

A kernel that is loaded when it is first launched needs an idle GPU; a rank whose GPU waits for
another rank has none, so both would wait until the limit of the exchange.
"""

import pytest

from tests.devices import device_kind, num_devices
from tests.native.test_gpu_faults import run_alone

VARIABLE = "CUDA_MODULE_LOADING"
EAGER = 1
READING = """
import ctypes
from glm_engine.verify.device import library_path
ctypes.CDLL(str(library_path("cuda").parent / "libcudawrap.so"))
read = ctypes.CDLL(None).getenv
read.restype = ctypes.c_char_p
print(read(b"CUDA_MODULE_LOADING").decode())
"""
GROUPING = """
import ctypes
from glm_engine.verify.device import Backend, BackendError
try:
    with Backend("cuda").group(2):
        mode = ctypes.c_int()
        assert ctypes.CDLL("libcuda.so.1").cuModuleGetLoadingMode(ctypes.byref(mode)) == 0
        print(mode.value)
except BackendError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def group_of_two(**variables: str) -> str:
    if device_kind() != "cuda" or num_devices("cuda") < 2:
        pytest.skip("two ranks have a GPU each with --device-kind cuda and two GPUs alone")
    return run_alone(GROUPING, **variables)[0]


def test_the_library_asks_for_kernels_at_once_when_it_is_opened():
    assert run_alone(READING) == ["EAGER"]


def test_what_the_user_chose_stays():
    assert run_alone(READING, CUDA_MODULE_LOADING="LAZY") == ["LAZY"]


def test_a_group_has_its_kernels_loaded():
    assert group_of_two() == str(EAGER)


def test_ranks_whose_kernels_come_later_are_refused():
    refused = group_of_two(CUDA_MODULE_LOADING="LAZY")
    assert refused.startswith("status 4: group_create: CUDA lazy loading is enabled")
    assert "CUDA_MODULE_LOADING=EAGER" in refused
