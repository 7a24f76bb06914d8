"""A kernel that only reads, launched like ours in a chain: each launch may begin before the one
ahead of it has ended."""

import ctypes
from collections.abc import Callable
from functools import cache

import torch

from tools.bindings.driver import checked, driver

SOURCE = """
extern "C" __global__ void __launch_bounds__(256)
    plain_read(const uint4* memory, long long count, unsigned* unless_null) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const long long begin = blockIdx.x * 2048LL + threadIdx.x;
  uint4 values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const long long place = begin + i * 256;
    values[i] = __ldcs(memory + (place < count ? place : count - 1));
  }
  unsigned total = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    total ^= values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
  if (unless_null != nullptr) *unless_null = total;
}
"""
Values = tuple[ctypes.c_void_p, ctypes.c_longlong, ctypes.c_void_p]
CHUNK_BYTES, CHUNKS_A_BLOCK, THREADS = 16, 2048, 256
PROGRAMMATIC_STREAM_SERIALIZATION = 6


class LaunchAttribute(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int64 * 8))


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("num_attributes", ctypes.c_uint),
    )


@cache
def nvrtc() -> ctypes.CDLL:
    major = torch.version.cuda.split(".")[0]
    return ctypes.CDLL(f"libnvrtc.so.{major}")


def compiled(source: str, target: str) -> bytes:
    """The cubin of a source for a target such as sm_90."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    created = (source.encode(), b"plain_read.cu", 0, None, None)
    checked(nvrtc(), "nvrtcCreateProgram", ctypes.byref(program), *created)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={target}".encode())
    checked(nvrtc(), "nvrtcCompileProgram", program, 1, options)
    checked(nvrtc(), "nvrtcGetCUBINSize", program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    checked(nvrtc(), "nvrtcGetCUBIN", program, cubin)
    nvrtc().nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw


@cache
def kernel() -> ctypes.c_void_p:
    """plain_read in PyTorch's context; it lives as long as the process."""
    cubin = compiled(SOURCE, "sm_{}{}".format(*torch.cuda.get_device_capability()))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver("cuModuleLoadData", ctypes.byref(module), cubin)
    driver("cuModuleGetFunction", ctypes.byref(function), module, b"plain_read")
    return function


def parameters(memory: torch.Tensor) -> tuple[ctypes.Array[ctypes.c_void_p], Values]:
    """The kernel's arguments as an array of pointers, and what they point to."""
    num_chunks = memory.nbytes // CHUNK_BYTES
    values = (
        ctypes.c_void_p(memory.data_ptr()),
        ctypes.c_longlong(num_chunks),
        ctypes.c_void_p(),
    )
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    return pointers, values


def plain_read(memory: torch.Tensor) -> Callable[[], None]:
    """A function that reads the tensor's memory on the current stream of PyTorch."""
    function, (pointers, values) = kernel(), parameters(memory)
    attribute = LaunchAttribute(PROGRAMMATIC_STREAM_SERIALIZATION)
    attribute.value[0] = 1
    num_blocks = -(-memory.nbytes // (CHUNK_BYTES * CHUNKS_A_BLOCK))
    config = LaunchConfig((num_blocks, 1, 1), (THREADS, 1, 1), 0)
    config.attributes, config.num_attributes = ctypes.pointer(attribute), 1

    def read(_keep: object = (values, memory)) -> None:
        config.stream = torch.cuda.current_stream().cuda_stream
        driver("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)

    return read
