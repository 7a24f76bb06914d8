"""Devices that do one thing wrong."""

import ctypes

import numpy as np

from glm_engine.verify.device import Backend, BackendError, Device

ONE_STEP_OF_BF16 = np.float32(1 + 2.0**-7)


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


class AlteredDevice(Device):
    """A CPU device of which an operation's outputs of a type come out altered."""

    def __init__(self, operation, alter, dtype=np.float32, workspace=None):
        self.operation, self.alter, self.dtype = operation, alter, np.dtype(dtype)
        self.outputs = {}
        super().__init__(Backend("cpu"), 2, workspace=workspace)

    def output(self, shape, dtype):
        made = super().output(shape, dtype)
        self.outputs[made.block.value] = made
        return made

    def release_blocks(self):
        self.outputs.clear()
        super().release_blocks()

    def run(self, operation, **fields):
        super().run(operation, **fields)
        if operation == self.operation:
            for address in addresses(fields):
                found = self.outputs.get(address)
                if found is not None and found.dtype == self.dtype:
                    self.upload(found.block, self.alter(found.get()))


def addresses(fields):
    """The addresses in arguments, those in their structs among them."""
    for value in fields.values():
        if isinstance(value, ctypes.Structure):
            yield from addresses({name: getattr(value, name) for name, _ in value._fields_})
        elif isinstance(value, ctypes.c_void_p):
            yield value.value
        elif isinstance(value, int):
            yield value


class FarReadingDevice(Device):
    """A CPU device whose attention reads one key past each context."""

    def __init__(self, workspace=None):
        super().__init__(Backend("cpu"), 2, workspace=workspace)

    def run(self, operation, **fields):
        if operation == "attention":
            segments = fields["segments"]
            shape = (segments.num_segments,)
            lengths = self.download(segments.context_length, shape, np.int32)
            segments.context_length = self.place(lengths + 1).value
        super().run(operation, **fields)


class TwiceCountingDevice(Device):
    """A CPU device that counts each token twice."""

    def __init__(self, workspace=None):
        super().__init__(Backend("cpu"), 2, workspace=workspace)

    def run(self, operation, **fields):
        for _ in range(2 if operation == "count_tokens" else 1):
            super().run(operation, **fields)


class RefusingDevice(Device):
    """A CPU device that refuses an operation."""

    def __init__(self, operation, workspace=None):
        self.operation = operation
        super().__init__(Backend("cpu"), 2, workspace=workspace)

    def run(self, operation, **fields):
        if operation == self.operation:
            raise BackendError(4, f"{operation}: not for this device")
        super().run(operation, **fields)
