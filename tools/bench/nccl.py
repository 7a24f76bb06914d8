"""NCCL's bare all-reduce over ranks in a graph, through libncclwrap.so and the driver's graphs."""

import ctypes
from contextlib import ExitStack
from functools import cache

import numpy as np

from glm_engine.core.engine import find_gpus
from tools.bindings.backend import BF16
from tools.bindings.wrappers import POINTER, Memory, wrapper

THREAD_LOCAL = 1


class DriverError(RuntimeError):
    """A call of the driver that did not succeed."""


def is_present() -> bool:
    try:
        return wrapper("ncclwrap") is not None
    except OSError:
        return False


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(find_gpus()["driver"])


def driver(call: str, *arguments) -> None:
    status = getattr(library(), call)(*arguments)
    if status:
        raise DriverError(f"{call}: CUDA error {status}")


class AllReduceGraph:
    """`num_calls` all-reduces of `count` rows of `width` BF16 on one rank's stream, captured."""

    def __init__(self, comm: POINTER, num_calls: int, count: int, width: int):
        self.comm, self.num_calls, self.num_elements = comm, num_calls, count * width
        self.cuda, self.memory = wrapper("cudawrap"), ExitStack()
        values = np.zeros(self.num_elements, np.uint16)
        self.given, self.sum = (self.memory.enter_context(Memory(values)) for _ in range(2))
        self.stream = self.cuda.made("cwCudaStreamCreate")
        self.events = [self.cuda.made("cwCudaEventCreate") for _ in range(2)]
        self.all_reduce()
        self.cuda.call("cwCudaDeviceSync")
        self.graph = self.captured()

    def all_reduce(self) -> None:
        pointers = (self.given.pointer, self.sum.pointer)
        given = (self.comm, *pointers, self.num_elements, BF16, self.stream)
        wrapper("ncclwrap").call("cwNcclAllReduce", *given)

    def captured(self) -> POINTER:
        captured, graph = POINTER(), POINTER()
        driver("cuStreamBeginCapture_v2", self.stream, THREAD_LOCAL)
        for _ in range(self.num_calls):
            self.all_reduce()
        driver("cuStreamEndCapture", self.stream, ctypes.byref(captured))
        driver("cuGraphInstantiateWithFlags", ctypes.byref(graph), captured, ctypes.c_uint64(0))
        driver("cuGraphDestroy", captured)
        return graph

    def replay(self) -> float:
        """Microseconds of one all-reduce."""
        begin, end = self.events
        self.cuda.call("cwCudaEventRecord", begin, self.stream)
        driver("cuGraphLaunch", self.graph, self.stream)
        self.cuda.call("cwCudaEventRecord", end, self.stream)
        self.cuda.call("cwCudaEventSync", end)
        milliseconds = ctypes.c_float()
        self.cuda.call("cwCudaEventElapsed", begin, end, ctypes.byref(milliseconds))
        return 1e3 * milliseconds.value / self.num_calls

    def free(self) -> None:
        driver("cuGraphExecDestroy", self.graph)
        for event in self.events:
            self.cuda.call("cwCudaEventDestroy", event)
        self.cuda.call("cwCudaStreamDestroy", self.stream)
        self.memory.close()
