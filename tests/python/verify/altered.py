"""Devices that do one thing wrong.

A sum over scattered rows counts as an operation of its own, SCATTERED.
"""

import ctypes

import numpy as np

from glm_engine.verify.device import Backend, BackendError, Device

ONE_STEP_OF_BF16 = np.float32(1 + 2.0**-7)
SCATTERED = "scattered sum"


def scaled(values: np.ndarray) -> np.ndarray:
    """All of an operation's values a step of BF16 too large."""
    return values * ONE_STEP_OF_BF16


def one_row_wrong(values: np.ndarray) -> np.ndarray:
    """The last row is that of a neighbour, a little off, or of zeros where it is alone."""
    changed = values.copy()
    changed[-1] = 1.01 * values[-2] if len(values) > 1 else 0
    return changed


def one_code_wrong_of_each(codes: np.ndarray) -> np.ndarray:
    """The first code of each row has another sign."""
    changed = codes.copy()
    changed[:, 0] ^= 0x80
    return changed


def name_of(operation, fields):
    return SCATTERED if fields.get("is_scattered") else operation


class CpuDevice(Device):
    def __init__(self, backend=None, num_threads=2, **opening):
        super().__init__(backend or Backend("cpu"), num_threads, **opening)


class AlteredBackend(Backend):
    """The CPU's library, whose devices are what `make` opens."""

    def __init__(self, make):
        self.make = make
        super().__init__("cpu")

    def device(self, *_, **opening):
        return self.make(backend=self, **opening)


class AlteredDevice(CpuDevice):
    """A CPU device of which an operation's outputs of a type come out altered."""

    def __init__(self, operation, alter, dtype=np.float32, **opening):
        self.operation, self.alter, self.dtype = operation, alter, np.dtype(dtype)
        self.outputs = {}
        super().__init__(**opening)

    def output(self, shape, dtype):
        return self.noted(super().output(shape, dtype))

    def shared(self, shape, dtype):
        return self.noted(super().shared(shape, dtype))

    def noted(self, made):
        self.outputs[made.block.value] = made
        return made

    def release_blocks(self):
        self.outputs.clear()
        super().release_blocks()

    def run(self, operation, **fields):
        super().run(operation, **fields)
        if name_of(operation, fields) == self.operation:
            for address in addresses(fields.values()):
                found = self.outputs.get(address)
                if found is not None and found.dtype == self.dtype:
                    self.upload(found.block, self.alter(found.get()))


def addresses(values):
    """The addresses in arguments, those in their structs among them."""
    for value in values:
        if isinstance(value, ctypes.Structure):
            yield from addresses(getattr(value, name) for name, _ in value._fields_)
        elif isinstance(value, ctypes.Array):
            yield from addresses(value)
        elif isinstance(value, ctypes.c_void_p):
            yield value.value
        elif isinstance(value, int):
            yield value


class IdleDevice(CpuDevice):
    """A CPU device that leaves an operation undone."""

    def __init__(self, operation, **opening):
        self.operation = operation
        super().__init__(**opening)

    def run(self, operation, **fields):
        if name_of(operation, fields) != self.operation:
            super().run(operation, **fields)


class FarReadingDevice(CpuDevice):
    """A CPU device whose attention reads one key past each context."""

    def run(self, operation, **fields):
        if operation == "attention":
            segments = fields["segments"]
            shape = (segments.num_segments,)
            lengths = self.download(segments.context_length, shape, np.int32)
            segments.context_length = self.place(lengths + 1).value
        super().run(operation, **fields)


class TwiceCountingDevice(CpuDevice):
    """A CPU device that counts each token twice."""

    def run(self, operation, **fields):
        for _ in range(2 if operation == "count_tokens" else 1):
            super().run(operation, **fields)


class RefusingDevice(CpuDevice):
    """A CPU device that refuses an operation, or of a group its last rank."""

    def __init__(self, operation, **opening):
        self.operation = operation
        super().__init__(**opening)

    def run(self, operation, **fields):
        if name_of(operation, fields) == self.operation and self.rank == self.world_size - 1:
            raise BackendError(4, f"{operation}: not for this device")
        super().run(operation, **fields)
