"""The checked calls of native/include/glm/*wrap.h through ctypes."""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Self, TypeVar

import numpy as np

from glm_engine.verify.device import library_path
from glm_engine.verify.header import functions, structs

POINTER = ctypes.c_void_p
T = TypeVar("T")


class NcclId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


GemmArgs = structs("cublaswrap.h")["cw_gemm_args"]


class CallError(RuntimeError):
    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Wrapper:
    """One library; `call` raises with its message where a status is not 0."""

    def __init__(self, name: str):
        path = library_path("cuda").with_name(f"lib{name}.so")
        self.library = ctypes.CDLL(str(path))
        for call, (result, arguments) in functions(f"{name}.h").items():
            function = getattr(self.library, call)
            function.restype, function.argtypes = result, arguments
            if call.endswith("LastMessage"):
                self.last_message = function

    def message(self) -> str:
        text = structs()["glm_message"]()
        self.last_message(ctypes.byref(text))
        return str(text.text.decode())

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CallError(status, self.message())

    def made(self, name: str, *arguments: Any) -> POINTER:
        """What a call writes through its first argument."""
        made = POINTER()
        self.call(name, ctypes.byref(made), *arguments)
        return made


@cache
def wrapper(name: str) -> Wrapper:
    return Wrapper(name)


def on_nccl_ranks(world_size: int, work: Callable[[POINTER, int], T]) -> list[T]:
    """Runs work(communicator, rank) on a thread a GPU; gives the results in rank order."""
    nccl, identity = wrapper("ncclwrap"), NcclId()
    nccl.call("cwNcclGetUniqueId", ctypes.byref(identity))

    def run(rank: int) -> T:
        wrapper("cudawrap").call("cwCudaSetDevice", rank)
        comm = nccl.made("cwNcclCommInitRank", world_size, ctypes.byref(identity), rank)
        result = work(comm, rank)
        nccl.call("cwNcclCommDestroy", comm)
        return result

    with ThreadPoolExecutor(world_size) as threads:
        return list(threads.map(run, range(world_size)))


class Memory:
    """Device memory with the bytes of an array, freed at the end of the block."""

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array)

    def __enter__(self) -> Self:
        cuda = wrapper("cudawrap")
        self.pointer = cuda.made("cwCudaMalloc", max(self.array.nbytes, 1))
        source = self.array.ctypes.data
        cuda.call("cwCudaMemcpyH2D", self.pointer, source, self.array.nbytes, None)
        return self

    def __exit__(self, *_: object) -> None:
        wrapper("cudawrap").call("cwCudaFree", self.pointer)

    def get(self) -> np.ndarray:
        host, cuda = np.empty_like(self.array), wrapper("cudawrap")
        cuda.call("cwCudaDeviceSync")
        cuda.call("cwCudaMemcpyD2H", host.ctypes.data, self.pointer, host.nbytes, None)
        cuda.call("cwCudaDeviceSync")
        return host
