"""Matrices of a device from tensors as a checkpoint stores them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8, GATE_UP, LINEAR, Device, Matrix
from glm_engine.verify.header import structs
from tests.reference import fp8
from tests.reference.checkpoint import Checkpoint

ALIGNMENT = 256
STORED_DTYPES = {"F32": 0, "BF16": 1, "F8_E4M3": FP8}


@dataclass(frozen=True)
class StoredMatrix:
    """Raw rows of one or more linear layers, their scales and biases where they have them."""

    dtype: int
    weight: np.ndarray
    scale: np.ndarray | None
    bias: np.ndarray | None

    def place(self, device: Device, role: int = LINEAR) -> Matrix:
        return Matrix(device, self.weight, self.dtype, role, self.scale, self.bias)


def joined(checkpoint: Checkpoint, modules: Sequence[str], suffix: str) -> np.ndarray | None:
    found = [checkpoint.tensors.get(f"{module}.{suffix}") for module in modules]
    if None in found:
        return None
    return np.concatenate([tensor.values().reshape(-1) for tensor in found]).astype(np.float32)


def stored_matrix(checkpoint: Checkpoint, *modules: str) -> StoredMatrix:
    """The modules' rows, one module after the other."""
    weights = [checkpoint.tensors[f"{module}.weight"] for module in modules]
    return StoredMatrix(
        STORED_DTYPES[weights[0].dtype],
        np.concatenate([tensor.data for tensor in weights]),
        joined(checkpoint, modules, "weight_scale"),
        joined(checkpoint, modules, "bias"),
    )


def input_of(matrix: Matrix, values: np.ndarray):
    """The values as this matrix takes them: quantised for FP8, plain otherwise."""
    if matrix.struct.dtype != FP8:
        return values
    codes, scales = fp8.quantise_per_token(values)
    return op.Quantised(codes, scales[:, 0])


class StoredExperts(op.ExpertStack):
    """Experts of a checkpoint."""

    def __init__(
        self, device: Device, gate_up: Sequence[StoredMatrix], down: Sequence[StoredMatrix]
    ):
        self.is_quantised = down[0].dtype == FP8
        placed = place_stack(device, gate_up, GATE_UP), place_stack(device, down, LINEAR)
        super().__init__(*placed, len(down))


def place_stack(device: Device, experts: Sequence[StoredMatrix], role: int) -> op.PlacedExperts:
    """Experts at bytes that are multiples of ALIGNMENT."""
    num_rows, columns = experts[0].weight.shape
    first = structs()["glm_matrix"](experts[0].dtype, role, num_rows, columns)
    stride = -(-device.matrix_bytes(first) // ALIGNMENT) * ALIGNMENT
    scale_stride = -(-4 * num_rows // ALIGNMENT) * ALIGNMENT
    first.data = device.empty(stride * len(experts)).value
    if experts[0].scale is not None:
        first.row_scale = device.empty(scale_stride * len(experts)).value
    placed = op.PlacedExperts(first, stride, scale_stride)
    for number, expert in enumerate(experts):
        Matrix.fill(device, placed.of(number), expert.weight, expert.scale, None)
    return placed
