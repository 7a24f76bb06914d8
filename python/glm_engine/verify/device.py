"""One device of a backend library, its operations called with numpy arrays.

Every array that an operation reads is copied to device memory, every output is allocated there
and poisoned before the call, so that a result that was never written shows.
"""

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from glm_engine.core.float8 import encode_bf16
from glm_engine.core.layout import LIBRARIES
from glm_engine.verify.facts import FACTS, workspace_shape
from glm_engine.verify.header import constants, structs

POISON = 0xA5
SHARED_BYTES = 1 << 24
ALIGNMENT = 1024
LIBRARY_VARIABLE = "GLM_BACKEND_LIBRARY_DIR"
Group = ctypes.c_void_p | None
DTYPES: dict[int, np.dtype[Any]] = {
    0: np.dtype(np.float32),
    1: np.dtype(np.uint16),
    2: np.dtype(np.uint8),
}
ARGUMENTS = {"save_pages": "transfer_pages", "restore_pages": "transfer_pages"}
F32, BF16, FP8 = 0, 1, 2
LINEAR, GATE_UP, TABLE = 0, 1, 2
OWN, SHARED = 0, 1
NO_SHARED_EXPERT = -1


class BackendError(RuntimeError):
    def __init__(self, status: int, text: str):
        super().__init__(f"status {status}: {text}")
        self.status = status
        self.text = text


def library_path(kind: str) -> Path:
    return Path(os.environ.get(LIBRARY_VARIABLE, LIBRARIES)) / f"libglm_{kind}.so"


class Backend:
    """The table of one library."""

    def __init__(self, kind: str, path: Path | None = None):
        self.kind = kind
        self.library = ctypes.CDLL(str(path or library_path(kind)))
        version = ctypes.c_uint32(constants()["GLM_BACKEND_ABI_VERSION"])
        table = made(self.library.glm_backend_open, version)
        self.table = structs()["glm_backend"].from_address(table.value)

    def device_count(self) -> int:
        count: int = made(self.table.device_count, kind=ctypes.c_int32).value
        return count

    @contextmanager
    def group(self, world_size: int, ranks_per_device: int = 1) -> Iterator[ctypes.c_void_p]:
        kind = structs()["glm_group_options"]
        options = kind(struct_size=ctypes.sizeof(kind), world_size=world_size)
        if ranks_per_device > 1:
            devices = [rank // ranks_per_device for rank in range(world_size)]
            listed = (ctypes.c_int32 * world_size)(*devices)
            options.devices = address(listed)
        group = made(self.table.group_create, address(options))
        try:
            yield group
        finally:
            self.table.group_free(group)

    def device(
        self,
        num_threads: int = 1,
        rank: int = 0,
        world_size: int = 1,
        group: Group = None,
        workspace: ctypes.Structure | None = None,
    ) -> "Device":
        return Device(self, num_threads, rank, world_size, group, workspace)


def poisoned(shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    return np.full(math.prod(shape) * np.dtype(dtype).itemsize, POISON, dtype=np.uint8)


def aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def address(thing: Any) -> int:
    return ctypes.addressof(thing)


def made(function: Callable[..., int], *arguments: Any, kind: type = ctypes.c_void_p) -> Any:
    """What a function writes through its last argument but one, the message."""
    value, message = kind(), structs()["glm_message"]()
    raise_for(function(*arguments, ctypes.byref(value), ctypes.byref(message)), message)
    return value


def raise_for(status: int, message: ctypes.Structure) -> None:
    if status:
        raise BackendError(status, message.text.decode())


class Device:
    """One open device, whose memory lives until `release_blocks` or `close`.

    workspace: the shape that the calls stay within; None: that of tests.
    """

    def __init__(
        self,
        backend: Backend,
        num_threads: int,
        rank: int = 0,
        world_size: int = 1,
        group: Group = None,
        workspace: ctypes.Structure | None = None,
    ):
        self.backend, self.table = backend, backend.table
        self.workspace = workspace or workspace_shape(world_size)
        self.facts = FACTS[backend.kind]
        self.blocks: list[ctypes.c_void_p] = []
        self.group, self.rank, self.world_size = group, rank, world_size
        options = structs()["glm_device_options"](
            ctypes.sizeof(structs()["glm_device_options"]),
            rank,
            world_size,
            num_threads,
            group.value if group is not None else None,
        )
        self.handle = made(self.table.device_open, address(options))
        self.info = structs()["glm_device_info"]()
        self.info.struct_size = ctypes.sizeof(self.info)
        self.check(self.table.device_info(self.handle, address(self.info)))
        self.set_workspace()

    def set_workspace(self) -> None:
        """The workspace, and behind it what ranks of a group share (`shared`)."""
        shape = self.workspace
        size = self.bytes_of("workspace_bytes", shape)
        logit_bytes = 4 * shape.max_logit_rows * shape.vocab_size
        num_bytes = size + (SHARED_BYTES + logit_bytes if self.group is not None else 0)
        memory = self.allocate(num_bytes, SHARED)
        self.upload(memory, np.full(num_bytes, POISON, dtype=np.uint8))
        self.check(self.table.set_workspace(self.handle, address(shape), memory, size))
        if self.group is not None:
            self.check(self.table.group_bind(self.handle, memory, num_bytes))
        assert memory.value is not None
        self.shared_begin = memory.value + aligned(size)
        self.shared_end = memory.value + num_bytes
        self.num_kept_blocks = len(self.blocks)

    def shared(self, shape: Sequence[int], dtype: DTypeLike) -> "Output":
        """Poisoned memory at the same place of every rank's memory, kept until `close`."""
        poison, block = poisoned(shape, dtype), ctypes.c_void_p(self.shared_begin)
        self.shared_begin += aligned(max(poison.nbytes, 1))
        assert self.shared_begin <= self.shared_end, "the shared memory is used up"
        self.upload(block, poison)
        return Output(self, tuple(shape), np.dtype(dtype), block)

    def release_blocks(self) -> None:
        """Gives back what was placed after the opening."""
        self.release(self.blocks[self.num_kept_blocks :])
        del self.blocks[self.num_kept_blocks :]

    def release(self, blocks: Sequence[ctypes.c_void_p]) -> None:
        """A device that was lost refuses, and what it has ends with the process."""
        for block in blocks:
            status = self.table.release(self.handle, block)
            if status != constants()["GLM_DEVICE_ERROR"]:
                self.check(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives all back."""
        self.release(self.blocks)
        self.table.device_close(self.handle)

    def message(self) -> str:
        message = structs()["glm_message"]()
        self.table.device_message(self.handle, address(message))
        return str(message.text.decode())

    def check(self, status: int) -> None:
        if status:
            raise BackendError(status, self.message())

    def made(self, operation: str, *arguments: Any, kind: type = ctypes.c_void_p) -> Any:
        """What an operation of the table writes through its last argument."""
        value = kind()
        self.check(getattr(self.table, operation)(self.handle, *arguments, address(value)))
        return value

    def allocate(self, num_bytes: int, kind: int = OWN) -> ctypes.c_void_p:
        block: ctypes.c_void_p = self.made("allocate", kind, num_bytes)
        self.blocks.append(block)
        return block

    def upload(self, block: ctypes.c_void_p, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array)
        self.check(self.table.upload(self.handle, block, array.ctypes.data, array.nbytes))

    def place(self, array: np.ndarray) -> ctypes.c_void_p:
        """A copy of the array in device memory."""
        array = np.ascontiguousarray(array)
        block = self.allocate(max(array.nbytes, 1))
        if array.nbytes:
            self.upload(block, array)
        return block

    def empty(self, num_bytes: int) -> ctypes.c_void_p:
        """Device memory full of the poison byte."""
        return self.place(np.full(max(num_bytes, 1), POISON, dtype=np.uint8))

    def output(self, shape: Sequence[int], dtype: DTypeLike) -> "Output":
        return Output(self, tuple(shape), np.dtype(dtype), self.place(poisoned(shape, dtype)))

    def synchronise(self) -> None:
        self.check(self.table.synchronise(self.handle))

    def download(
        self, block: ctypes.c_void_p, shape: Sequence[int], dtype: DTypeLike
    ) -> np.ndarray:
        array = np.empty(shape, dtype=dtype)
        self.check(self.table.download(self.handle, array.ctypes.data, block, array.nbytes))
        self.synchronise()
        return array

    def bytes_of(self, operation: str, struct: ctypes.Structure) -> int:
        """What an operation that sizes a struct answers."""
        size = ctypes.c_int64()
        status = getattr(self.table, operation)(address(struct), address(size))
        if status:
            raise BackendError(status, operation)
        return size.value

    def matrix_bytes(self, struct: ctypes.Structure) -> int:
        return self.bytes_of("matrix_bytes", struct)

    def page_bytes(self, struct: ctypes.Structure) -> int:
        return self.bytes_of("kv_page_bytes", struct)

    def page_size(self, wanted: int) -> int:
        """The least page size of this kind that holds `wanted` positions."""
        step = self.facts.page_step
        return -(-wanted // step) * step

    def elapsed_ms(self, work: Callable[[], object]) -> float:
        """The device's time between the events around what `work` queues."""
        begin, end = self.made("event_create"), self.made("event_create")
        self.check(self.table.event_record(self.handle, begin))
        work()
        self.check(self.table.event_record(self.handle, end))
        self.check(self.table.event_synchronise(self.handle, end))
        milliseconds: float = self.made("event_elapsed", begin, end, kind=ctypes.c_float).value
        for event in (begin, end):
            self.check(self.table.event_free(self.handle, event))
        return milliseconds

    def capture(self, calls: Iterable[Callable[[], object]]) -> ctypes.c_void_p:
        """A graph of the calls; a call that fails ends the capture."""
        self.check(self.table.graph_begin(self.handle))
        try:
            for call in calls:
                call()
        except RuntimeError:
            self.table.graph_end(self.handle, None)
            raise
        graph: ctypes.c_void_p = self.made("graph_end")
        return graph

    def replay(self, graph: ctypes.c_void_p) -> None:
        self.check(self.table.graph_replay(self.handle, graph))

    def free_graph(self, graph: ctypes.c_void_p) -> None:
        self.check(self.table.graph_free(self.handle, graph))

    @property
    def activation_type(self) -> np.dtype[Any]:
        return DTYPES[self.info.activation_dtype]

    def activation(self, values: np.ndarray) -> ctypes.c_void_p:
        """float32 values placed in the device's activation type."""
        values = np.asarray(values, dtype=np.float32)
        return self.place(values if self.activation_type == np.float32 else encode_bf16(values))

    def run(self, operation: str, **fields: Any) -> None:
        """Calls an operation of the table with an argument struct of these fields."""
        name = ARGUMENTS.get(operation, operation)
        arguments = structs()[f"glm_{name}_args"](**fields)
        self.check(getattr(self.table, operation)(self.handle, address(arguments)))


@dataclass
class Output:
    """Poisoned device memory of a shape, read back with `get`."""

    device: Device
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    block: ctypes.c_void_p

    def get(self) -> np.ndarray:
        return self.device.download(self.block, self.shape, self.dtype)


class Matrix:
    """A matrix placed on the device: `struct` is the glm_matrix that operations take."""

    def __init__(
        self,
        device: Device,
        values: np.ndarray,
        dtype: int,
        role: int = LINEAR,
        scale: np.ndarray | None = None,
        bias: np.ndarray | None = None,
    ):
        num_rows, columns = values.shape
        self.struct = structs()["glm_matrix"](dtype, role, num_rows, columns)
        self.struct.data = device.empty(device.matrix_bytes(self.struct)).value
        if scale is not None:
            self.struct.row_scale = device.empty(4 * num_rows).value
        if bias is not None:
            self.struct.bias = device.empty(4 * num_rows).value
        self.fill(device, self.struct, values, scale, bias)

    @staticmethod
    def fill(
        device: Device,
        struct: ctypes.Structure,
        values: np.ndarray,
        scale: np.ndarray | None,
        bias: np.ndarray | None,
        waits: bool = True,
    ) -> None:
        """Places all rows of a matrix whose memory is there; who does not wait keeps the arrays,
        which must be of the types that are placed, until `synchronise`."""
        values = np.ascontiguousarray(values, dtype=DTYPES[struct.dtype])
        scale = None if scale is None else np.ascontiguousarray(scale, dtype=np.float32)
        bias = None if bias is None else np.ascontiguousarray(bias, dtype=np.float32)
        device.run(
            "place_rows",
            matrix=address(struct),
            row_begin=0,
            num_rows=struct.rows,
            source=values.ctypes.data,
            source_row_stride=values.shape[1],
            scale_source=None if scale is None else scale.ctypes.data,
            bias_source=None if bias is None else bias.ctypes.data,
        )
        if waits:
            device.synchronise()

    @property
    def pointer(self) -> int:
        return address(self.struct)
