"""Operations of a device as functions from numpy arrays to numpy arrays."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from glm_engine.core.float8 import decode_bf16, encode_bf16
from glm_engine.verify.device import NO_SHARED_EXPERT, Device, Matrix, Output, address
from glm_engine.verify.header import structs

Fields = dict[str, Any]
Outputs = tuple[Output | None, Output | None, Output | None]
"""Plain rows, codes and their scales, or None where an output is not asked for."""


@dataclass(frozen=True)
class Quantised:
    """E4M3 codes [rows, width] and the scale of each row."""

    codes: np.ndarray
    scale: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)


Given = np.ndarray | Quantised
Rows = tuple[np.ndarray | None, Quantised | None]


def as_activation(device: Device, values: ArrayLike) -> np.ndarray:
    """float32 values as the device will see them."""
    values = np.asarray(values, dtype=np.float32)
    return values if device.activation_type == np.float32 else decode_bf16(encode_bf16(values))


def activation_output(device: Device, shape: Sequence[int]) -> Output:
    return device.output(shape, device.activation_type)


def as_values(array: np.ndarray) -> np.ndarray:
    """float32 values of what is stored in an activation type."""
    return array if array.dtype == np.float32 else decode_bf16(array)


def activation_values(output: Output) -> np.ndarray:
    return as_values(output.get())


def outputs(
    device: Device, shape: Sequence[int], plain: bool, quantised: bool
) -> tuple[ctypes.Structure, Outputs]:
    """glm_activation_output, and the outputs that are asked for."""
    text = activation_output(device, shape) if plain else None
    codes = device.output(shape, np.uint8) if quantised else None
    scale = device.output(shape[:1], np.float32) if quantised else None
    blocks = [None if each is None else each.block for each in (text, codes, scale)]
    return structs()["glm_activation_output"](*blocks), (text, codes, scale)


def results(made: Outputs) -> Rows:
    plain, codes, scale = made
    values = None if plain is None else activation_values(plain)
    if codes is None or scale is None:
        return values, None
    return values, Quantised(codes.get(), scale.get())


def quantise(device: Device, values: np.ndarray) -> Quantised:
    codes, scale = device.output(values.shape, np.uint8), device.output(values.shape[:1], "f4")
    device.run(
        "quantise",
        num_tokens=len(values),
        width=values.shape[1],
        input=device.activation(values),
        codes=codes.block,
        row_scale=scale.block,
    )
    return Quantised(codes.get(), scale.get())


def add_norm(
    device: Device,
    residual: np.ndarray,
    delta: np.ndarray | None,
    weight: ArrayLike,
    epsilon: float,
    plain: bool = True,
    quantised: bool = True,
) -> tuple[np.ndarray, np.ndarray | None, Quantised | None]:
    """(new residual, plain or None, Quantised or None)."""
    given = outputs(device, residual.shape, plain, quantised)
    return add_norm_into(device, residual, delta, weight, epsilon, *given)


def add_norm_into(
    device: Device,
    residual: np.ndarray,
    delta: np.ndarray | None,
    weight: ArrayLike,
    epsilon: float,
    struct: ctypes.Structure,
    made: Outputs,
    scattered_rows: int | None = None,
    meet: Callable[[Device], None] = Device.synchronise,
) -> tuple[np.ndarray, np.ndarray | None, Quantised | None]:
    """As `add_norm`, into those outputs; of scattered rows after ranks `meet`."""
    state = device.activation(residual)
    device.run(
        "reduce_add_norm_quantise",
        num_tokens=len(residual) if scattered_rows is None else scattered_rows,
        hidden_size=residual.shape[1],
        epsilon=epsilon,
        is_scattered=int(scattered_rows is not None),
        residual=state,
        delta=None if delta is None else device.activation(delta),
        weight=device.place(np.asarray(weight, np.float32)),
        output=struct,
    )
    meet(device)
    total = as_values(device.download(state, residual.shape, device.activation_type))
    return total, *results(made)


def scattered_outputs(
    device: Device, shape: Sequence[int], num_rows: int
) -> tuple[ctypes.Structure, Outputs]:
    """As `outputs`: plain of this rank's rows, codes and scales of all, which other ranks write."""
    text = activation_output(device, shape)
    codes = device.shared((num_rows, shape[1]), np.uint8)
    scale = device.shared((num_rows,), np.float32)
    blocks = (text.block, codes.block, scale.block)
    return structs()["glm_activation_output"](*blocks), (text, codes, scale)


def meet(device: Device) -> None:
    """What every rank of the group did before is done, what it stored in other ranks too."""
    device.run("all_gather", num_rows=0, num_arrays=0)


def scattered_add_norm(
    device: Device,
    residual: np.ndarray,
    delta: np.ndarray | None,
    weight: ArrayLike,
    epsilon: float,
    num_rows: int,
) -> tuple[np.ndarray, np.ndarray | None, Quantised | None]:
    """As `add_norm` of `num_rows` rows over all ranks: residual and plain are those of this rank,
    codes and scales of all."""
    made = scattered_outputs(device, residual.shape, num_rows)
    meet(device)
    return add_norm_into(device, residual, delta, weight, epsilon, *made, num_rows, meet)


def swiglu(device: Device, gate_up: np.ndarray, plain: bool = True, quantised: bool = True) -> Rows:
    """gate_up as `linear` with a GATE_UP matrix left it."""
    width = gate_up.shape[1] // 2
    struct, made = outputs(device, (len(gate_up), width), plain, quantised)
    device.run(
        "swiglu_quantise",
        num_tokens=len(gate_up),
        width=width,
        gate_up=device.activation(gate_up),
        output=struct,
    )
    return results(made)


def activation(device: Device, values: Given) -> ctypes.Structure:
    """glm_activation of float32 values or of a Quantised."""
    if isinstance(values, Quantised):
        codes, scale = device.place(values.codes), device.place(values.scale)
        return structs()["glm_activation"](None, codes, scale)
    return structs()["glm_activation"](device.activation(values), None, None)


def linear(device: Device, placed: Matrix, values: Given) -> np.ndarray:
    output = activation_output(device, (len(values), placed.struct.rows))
    device.run(
        "linear",
        num_tokens=len(values),
        matrix=placed.pointer,
        input=activation(device, values),
        output=output.block,
    )
    return activation_values(output)


def embed(device: Device, placed: Matrix, token_ids: ArrayLike, id_stride: int = 1) -> np.ndarray:
    ids = np.asarray(token_ids, np.int32)
    num_tokens = -(-len(ids) // max(id_stride, 1))
    output = activation_output(device, (num_tokens, placed.struct.columns))
    device.run(
        "embed",
        num_tokens=num_tokens,
        id_stride=id_stride,
        token_ids=device.place(ids),
        table=placed.pointer,
        residual=output.block,
    )
    return activation_values(output)


def embed_norm_concat(
    device: Device,
    placed: Matrix,
    token_ids: ArrayLike,
    positions: ArrayLike,
    hidden: np.ndarray,
    norms: Sequence[np.ndarray] | np.ndarray,
    epsilon: float,
) -> np.ndarray:
    """Rows of [embedding, hidden state], both normed by their weight in `norms`."""
    embedding_norm, hidden_norm = (device.place(np.asarray(each, np.float32)) for each in norms)
    num_tokens, hidden_size = hidden.shape
    output = activation_output(device, (num_tokens, 2 * hidden_size))
    device.run(
        "embed_norm_concat",
        num_tokens=num_tokens,
        hidden_size=hidden_size,
        epsilon=epsilon,
        token_ids=device.place(np.asarray(token_ids, np.int32)),
        positions=device.place(np.asarray(positions, np.int32)),
        table=placed.pointer,
        embedding_norm=embedding_norm,
        hidden=device.activation(hidden),
        hidden_norm=hidden_norm,
        output=output.block,
    )
    return activation_values(output)


def logits(
    device: Device, placed: Matrix, values: np.ndarray, row_index: ArrayLike | None
) -> np.ndarray:
    """Logits of the chosen rows; of every row in order where row_index is None."""
    chosen = None if row_index is None else np.asarray(row_index, np.int32)
    num_rows = len(values) if chosen is None else len(chosen)
    output = device.output((num_rows, placed.struct.rows), np.float32)
    device.run(
        "logits",
        num_rows=num_rows,
        row_index=None if chosen is None else device.place(chosen),
        input=device.activation(values),
        head=placed.pointer,
        output=output.block,
    )
    return output.get()


def route(
    device: Device,
    placed: Matrix,
    values: np.ndarray,
    bias: ArrayLike,
    top_k: int,
    normalise: bool = True,
    factor: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """(expert ids, expert weights), [tokens, top_k]."""
    shape = (len(values), top_k)
    ids, weights = device.output(shape, np.int32), device.output(shape, np.float32)
    device.run(
        "route",
        num_tokens=len(values),
        top_k=top_k,
        normalise=int(normalise),
        scaling_factor=factor,
        input=device.activation(values),
        router=placed.pointer,
        selection_bias=device.place(np.asarray(bias, np.float32)),
        expert_ids=ids.block,
        expert_weights=weights.block,
    )
    return ids.get(), weights.get()


@dataclass(frozen=True)
class PlacedExperts:
    """The glm_matrix of expert 0, and the bytes from one expert's data and scales to the next."""

    matrix: ctypes.Structure
    stride: int
    scale_stride: int

    def of(self, expert: int) -> ctypes.Structure:
        """The matrix of one expert, alone."""
        moved = type(self.matrix).from_buffer_copy(self.matrix)
        moved.data = self.matrix.data + expert * self.stride
        if self.matrix.row_scale:
            moved.row_scale = self.matrix.row_scale + expert * self.scale_stride
        return moved


def empty_experts(
    device: Device,
    num_experts: int,
    shape: tuple[int, int, int, int],
    has_scales: bool,
    padding: int = 0,
) -> PlacedExperts:
    """Memory of experts of (dtype, role, rows, columns) one after the other, `padding` apart."""
    first = structs()["glm_matrix"](*shape)
    stride, scale_stride = device.matrix_bytes(first) + padding, 4 * shape[2] + padding
    first.data = device.empty(max(num_experts, 1) * stride).value
    if has_scales:
        first.row_scale = device.empty(max(num_experts, 1) * scale_stride).value
    return PlacedExperts(first, stride, scale_stride)


@dataclass
class ExpertStack:
    """Experts of one dtype placed one after the other."""

    gate_up: PlacedExperts
    down: PlacedExperts
    num_experts: int

    def matrices(self, expert: int) -> list[ctypes.Structure]:
        """gate_up and down of one expert, alone."""
        return [part.of(expert) for part in (self.gate_up, self.down)]

    def part(self, begin: int, end: int) -> "ExpertStack":
        """Neighbours among the experts."""
        first = [replace(each, matrix=each.of(begin)) for each in (self.gate_up, self.down)]
        return ExpertStack(first[0], first[1], end - begin)

    def fields(self) -> Fields:
        """What `experts` is told of the matrices."""
        return {
            "gate_up": address(self.gate_up.matrix),
            "down": address(self.down.matrix),
            "gate_up_stride": self.gate_up.stride,
            "gate_up_scale_stride": self.gate_up.scale_stride,
            "down_stride": self.down.stride,
            "down_scale_stride": self.down.scale_stride,
        }


class SharedExpert:
    """An expert of a stack of its own, and the id by which rows choose it."""

    def __init__(self, expert_id: int, stack: ExpertStack, index: int = 0):
        self.id, self.stack = expert_id, stack
        self.gate_up, self.down = stack.matrices(index)

    def fields(self) -> Fields:
        return {
            "shared_expert_id": self.id,
            "shared_gate_up": address(self.gate_up),
            "shared_down": address(self.down),
        }


NOTHING_SHARED = {"shared_expert_id": NO_SHARED_EXPERT}


def experts(
    device: Device,
    stack: ExpertStack,
    values: Given,
    ids: np.ndarray,
    weights: ArrayLike,
    begin: int = 0,
    local: int | None = None,
    initial: np.ndarray | None = None,
    shared: SharedExpert | None = None,
) -> np.ndarray:
    """[tokens, hidden]: the weighted sum over the local experts, on top of `initial`."""
    output = activation_output(device, (len(ids), stack.gate_up.matrix.columns))
    device.run(
        "experts",
        num_tokens=len(ids),
        top_k=ids.shape[1],
        expert_begin=begin,
        num_local_experts=stack.num_experts if local is None else local,
        input=activation(device, values),
        expert_ids=device.place(np.asarray(ids, np.int32)),
        expert_weights=device.place(np.asarray(weights, np.float32)),
        initial=None if initial is None else device.activation(initial),
        output=output.block,
        **stack.fields(),
        **(shared.fields() if shared else NOTHING_SHARED),
    )
    return activation_values(output)


def rope_tables(
    device: Device, theta: float, rotary_dim: int, num_positions: int
) -> tuple[Output, Output]:
    """Cosines and sines [positions, rotary_dim / 2]."""
    shape = (num_positions, rotary_dim // 2)
    cosine, sine = device.output(shape, np.float32), device.output(shape, np.float32)
    device.run(
        "rope_table",
        theta=theta,
        rotary_dim=rotary_dim,
        num_positions=num_positions,
        cosine=cosine.block,
        sine=sine.block,
    )
    return cosine, sine
