"""A device of a back end, driven through its table of operations with numpy arrays."""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from glm_engine.libraries import find_backend_library

from tests.native.header import NUMBERS, STRUCTS

OK = NUMBERS["GLM_OK"]
OPEN_SYMBOL = "glm_backend_open"
DTYPES = {
    np.dtype(np.float32): NUMBERS["GLM_DTYPE_F32"],
    np.dtype(np.uint16): NUMBERS["GLM_DTYPE_BF16"],
    np.dtype(np.uint8): NUMBERS["GLM_DTYPE_F8_E4M3"],
}


class DeviceError(Exception):
    """A status other than GLM_OK, with the device's message."""

    def __init__(self, operation: str, status: int, text: str):
        super().__init__(f"{operation}: status {status}: {text}")
        self.status = status


def struct(name: str, **fields) -> ctypes.Structure:
    """A struct of backend.h by name; fields that are not given are zero."""
    return STRUCTS[name](**fields)


def sized(name: str, **fields) -> ctypes.Structure:
    return struct(name, struct_size=ctypes.sizeof(STRUCTS[name]), **fields)


def open_table(kind: str) -> ctypes.Structure:
    """The constant table of libglm_<kind>.so."""
    library = ctypes.CDLL(str(find_backend_library(kind).path))
    table, message = ctypes.POINTER(STRUCTS["glm_backend"])(), struct("glm_message")
    open_backend = getattr(library, OPEN_SYMBOL)
    version = NUMBERS["GLM_BACKEND_ABI_VERSION"]
    status = open_backend(version, ctypes.byref(table), ctypes.byref(message))
    if status != OK:
        raise DeviceError(OPEN_SYMBOL, status, message.text.decode())
    return table.contents


class Device:
    """One open device; arrays go up with `up`, come back with `down`, operations run by name."""

    def __init__(self, table: ctypes.Structure, handle: ctypes.c_void_p):
        self.table = table
        self.handle = handle
        self.allocated: list[ctypes.c_void_p] = []

    def check(self, operation: str, status: int) -> None:
        if status != OK:
            message = struct("glm_message")
            self.table.device_message(self.handle, ctypes.byref(message))
            raise DeviceError(operation, status, message.text.decode())

    def allocate(self, num_bytes: int) -> int:
        memory = ctypes.c_void_p()
        size = max(int(num_bytes), 1)
        self.check("allocate", self.table.allocate(self.handle, size, ctypes.byref(memory)))
        self.allocated.append(memory)
        return memory.value

    def up(self, array: np.ndarray | None, dtype: type = np.float32) -> int | None:
        """A copy of the array in device memory; None stays None."""
        if array is None:
            return None
        array = np.ascontiguousarray(array, dtype=dtype)
        memory = self.allocate(array.nbytes)
        if array.nbytes:
            status = self.table.upload(self.handle, memory, array.ctypes.data, array.nbytes)
            self.check("upload", status)
        return memory

    def room(self, *shape: int, dtype: type = np.float32) -> int:
        """Device memory for an array of this shape, filled with a pattern that no result has."""
        return self.up(np.full(shape, 0x5A, dtype=dtype), dtype)

    def down(self, memory: int, *shape: int, dtype: type = np.float32) -> np.ndarray:
        array = np.empty(shape, dtype=dtype)
        if array.nbytes:
            status = self.table.download(self.handle, array.ctypes.data, memory, array.nbytes)
            self.check("download", status)
        return array

    def run(self, operation: str, arguments: ctypes.Structure) -> None:
        """Queues one operation and waits for it."""
        function = getattr(self.table, operation)
        self.check(operation, function(self.handle, ctypes.byref(arguments)))
        self.check("synchronise", self.table.synchronise(self.handle))

    def set_workspace(self, **shape: int) -> None:
        """Hands over scratch memory for operations up to these sizes."""
        wanted, size = sized("glm_workspace_shape", **shape), ctypes.c_int64()
        status = self.table.workspace_bytes(ctypes.byref(wanted), ctypes.byref(size))
        self.check("workspace_bytes", status)
        memory = self.allocate(size.value)
        status = self.table.set_workspace(self.handle, ctypes.byref(wanted), memory, size.value)
        self.check("set_workspace", status)

    def close(self) -> None:
        for memory in self.allocated:
            self.check("release", self.table.release(self.handle, memory))
        self.table.device_close(self.handle)


@contextmanager
def open_device(kind: str = "cpu", num_threads: int = 1) -> Iterator[Device]:
    """Rank 0 of 1 on this kind of device."""
    table, group = open_table(kind), ctypes.c_void_p()
    handle, message = ctypes.c_void_p(), struct("glm_message")
    status = table.group_create(1, ctypes.byref(group), ctypes.byref(message))
    if status != OK:
        raise DeviceError("group_create", status, message.text.decode())
    options = sized(
        "glm_device_options", rank=0, world_size=1, num_threads=num_threads, group=group.value
    )
    arguments = (ctypes.byref(options), ctypes.byref(handle), ctypes.byref(message))
    status = table.device_open(*arguments)
    if status != OK:
        raise DeviceError("device_open", status, message.text.decode())
    device = Device(table, handle)
    try:
        yield device
    finally:
        device.close()
        table.group_free(group)


def place_matrix(
    device: Device,
    parts: Mapping[int, tuple[np.ndarray, np.ndarray | None, np.ndarray | None]],
    role: int = NUMBERS["GLM_MATRIX_LINEAR"],
) -> ctypes.Structure:
    """A matrix from stored parts: first row → (raw weight, float32 scales, float32 bias)."""
    weights = [weight for weight, _, _ in parts.values()]
    rows, columns = sum(len(weight) for weight in weights), weights[0].shape[1]
    matrix = empty_matrix(device, DTYPES[weights[0].dtype], rows, columns, role)
    if next(iter(parts.values()))[2] is not None:
        matrix.bias = device.room(rows)
    for row_begin, part in parts.items():
        place_part(device, matrix, row_begin, *part)
    return matrix


def empty_matrix(
    device: Device, dtype: int, rows: int, columns: int, role: int
) -> ctypes.Structure:
    matrix = struct("glm_matrix", dtype=dtype, role=role, rows=rows, columns=columns)
    size = ctypes.c_int64()
    status = device.table.matrix_bytes(ctypes.byref(matrix), ctypes.byref(size))
    device.check("matrix_bytes", status)
    matrix.data = device.allocate(size.value)
    if dtype == NUMBERS["GLM_DTYPE_F8_E4M3"]:
        matrix.row_scale = device.room(rows)
    return matrix


def place_part(
    device: Device,
    matrix: ctypes.Structure,
    row_begin: int,
    weight: np.ndarray,
    scales: np.ndarray | None,
    bias: np.ndarray | None,
) -> None:
    """Rows of a matrix from host arrays, as the engine places them from a checkpoint."""
    weight = np.ascontiguousarray(weight)
    scales = None if scales is None else np.ascontiguousarray(scales, dtype=np.float32)
    bias = None if bias is None else np.ascontiguousarray(bias, dtype=np.float32)
    arguments = struct(
        "glm_place_rows_args",
        matrix=ctypes.addressof(matrix),
        row_begin=row_begin,
        num_rows=len(weight),
        source=weight.ctypes.data,
        source_row_stride=weight.shape[1],
        scale_source=None if scales is None else scales.ctypes.data,
        scale_dtype=NUMBERS["GLM_DTYPE_F32"],
        bias_source=None if bias is None else bias.ctypes.data,
        bias_dtype=NUMBERS["GLM_DTYPE_F32"],
    )
    device.run("place_rows", arguments)
