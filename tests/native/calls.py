"""Operations of a device as functions from numpy arrays to numpy arrays."""

from ctypes import addressof
from dataclasses import dataclass

import numpy as np

from tests.devices import device_kind
from tests.reference import fp8
from tools.bindings.backend import (
    BF16,
    F32,
    FP8,
    GATE_UP,
    LINEAR,
    NO_SHARED_EXPERT,
    TABLE,
    Device,
    Matrix,
    structs,
)
from tools.checkpoint.float8 import decode_bf16, encode_bf16

PLAIN_WEIGHTS = {"bf16": BF16} if device_kind() == "cuda" else {"f32": F32, "bf16": BF16}
WEIGHTS = {**PLAIN_WEIGHTS, "fp8": FP8}
FLOAT32_TOLERANCE = 1e-5
BF16_TOLERANCE = 5e-3


@dataclass(frozen=True)
class Quantised:
    codes: np.ndarray
    scale: np.ndarray

    def values(self) -> np.ndarray:
        return fp8.dequantise(self.codes, self.scale[:, None])


def tolerance(device: Device) -> float:
    return FLOAT32_TOLERANCE if device.activation_type == np.float32 else BF16_TOLERANCE


def assert_codes(device: Device, actual: Quantised, plain: np.ndarray, exact: np.ndarray) -> None:
    """Codes of `plain` bit for bit where activations are float32; else those of the values
    before they were rounded to BF16, but for one in 500 beside a border between two codes."""
    if device.activation_type == np.float32:
        codes, scale = fp8.quantise_per_token(plain)
        np.testing.assert_array_equal(actual.codes, codes)
        np.testing.assert_array_equal(actual.scale, scale[:, 0])
        return
    codes, scale = fp8.quantise_per_token(exact.astype(np.float32))
    np.testing.assert_allclose(actual.scale, scale[:, 0], rtol=1e-5)
    assert np.count_nonzero(actual.codes != codes) <= 1 + codes.size // 500


def rows_of(given, part: slice):
    """Some rows of what an operation is given."""
    if isinstance(given, Quantised):
        return Quantised(given.codes[part], given.scale[part])
    return given[part]


def as_activation(device: Device, values: np.ndarray) -> np.ndarray:
    """float32 values as the device will see them."""
    values = np.asarray(values, dtype=np.float32)
    return values if device.activation_type == np.float32 else decode_bf16(encode_bf16(values))


def activation_output(device: Device, shape):
    return device.output(shape, device.activation_type)


def activation_values(output) -> np.ndarray:
    array = output.get()
    return array if array.dtype == np.float32 else decode_bf16(array)


def outputs(device: Device, shape, plain: bool, quantised: bool):
    """(struct, plain, codes, scale): the outputs that are asked for, the others None."""
    text = activation_output(device, shape) if plain else None
    codes = device.output(shape, np.uint8) if quantised else None
    scale = device.output(shape[:1], np.float32) if quantised else None
    blocks = [None if each is None else each.block for each in (text, codes, scale)]
    return structs()["glm_activation_output"](*blocks), text, codes, scale


def scattered_outputs(device: Device, shape, num_rows: int):
    """As `outputs`: plain of this rank's rows, codes and scales of all, which other ranks write."""
    text = activation_output(device, shape)
    codes = device.shared((num_rows, shape[1]), np.uint8)
    scale = device.shared((num_rows,), np.float32)
    blocks = (text.block, codes.block, scale.block)
    return structs()["glm_activation_output"](*blocks), text, codes, scale


def meet(device: Device) -> None:
    """What every rank of the group did before is done, what it stored in other ranks too."""
    device.run("all_gather", num_rows=0, num_arrays=0)


def results(plain, codes, scale):
    values = None if plain is None else activation_values(plain)
    return values, None if codes is None else Quantised(codes.get(), scale.get())


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


def add_norm(device, residual, delta, weight, epsilon, plain=True, quantised=True):
    """(new residual, plain or None, Quantised or None)."""
    struct, *wanted = outputs(device, residual.shape, plain, quantised)
    return _add_norm(device, residual, delta, weight, epsilon, struct, wanted)


def scattered_add_norm(device, residual, delta, weight, epsilon, num_rows):
    """As `add_norm` of `num_rows` rows over all ranks: residual and plain are those of this rank,
    codes and scales of all."""
    struct, *wanted = scattered_outputs(device, residual.shape, num_rows)
    meet(device)
    return _add_norm(device, residual, delta, weight, epsilon, struct, wanted, num_rows)


def _add_norm(device, residual, delta, weight, epsilon, struct, wanted, scattered_rows=None):
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
    if scattered_rows is not None:
        meet(device)
    raw = device.download(state, residual.shape, device.activation_type)
    total = raw if raw.dtype == np.float32 else decode_bf16(raw)
    return total, *results(*wanted)


def swiglu(device, gate_up, plain=True, quantised=True):
    """gate_up as `linear` with a GATE_UP matrix left it."""
    width = gate_up.shape[1] // 2
    struct, *wanted = outputs(device, (len(gate_up), width), plain, quantised)
    device.run(
        "swiglu_quantise",
        num_tokens=len(gate_up),
        width=width,
        gate_up=device.activation(gate_up),
        output=struct,
    )
    return results(*wanted)


def stored(values: np.ndarray, dtype: int):
    """(array as a checkpoint holds it, scale or None, float64 values that it stands for)."""
    if dtype == FP8:
        codes, scale = fp8.quantise_weight(np.asarray(values, np.float32))
        return codes, scale[:, 0], fp8.dequantise(codes, scale)
    if dtype == BF16:
        bits = encode_bf16(values)
        return bits, None, decode_bf16(bits).astype(np.float64)
    values = np.asarray(values, np.float32)
    return values, None, values.astype(np.float64)


def matrix(device, values, dtype, bias=None, role=LINEAR):
    """(Matrix, float64 values that it stands for)."""
    array, scale, exact = stored(values, dtype)
    return Matrix(device, array, dtype, role, scale, bias), exact


def activation(device: Device, values):
    """glm_activation of float32 values or of a Quantised."""
    if isinstance(values, Quantised):
        placed = (None, device.place(values.codes), device.place(values.scale))
    else:
        placed = (device.activation(values), None, None)
    return structs()["glm_activation"](*placed)


def linear(device, placed: Matrix, values) -> np.ndarray:
    num_tokens = len(values.codes if isinstance(values, Quantised) else values)
    output = activation_output(device, (num_tokens, placed.struct.rows))
    device.run(
        "linear",
        num_tokens=num_tokens,
        matrix=placed.pointer,
        input=activation(device, values),
        output=output.block,
    )
    return activation_values(output)


def embed(device, placed: Matrix, token_ids, id_stride: int = 1) -> np.ndarray:
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


def table(device, values, dtype):
    array, _, exact = stored(values, dtype)
    return Matrix(device, array, dtype, TABLE), exact


def embed_norm_concat(device, placed: Matrix, token_ids, positions, hidden, norms, epsilon):
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


def logits(device, placed: Matrix, values, row_index) -> np.ndarray:
    """Logits of the chosen rows; of every row in order where row_index is None."""
    num_rows = len(values) if row_index is None else len(row_index)
    index = None if row_index is None else device.place(np.asarray(row_index, np.int32))
    output = device.output((num_rows, placed.struct.rows), np.float32)
    device.run(
        "logits",
        num_rows=num_rows,
        row_index=index,
        input=device.activation(values),
        head=placed.pointer,
        output=output.block,
    )
    return output.get()


def route(device, placed: Matrix, values, bias, top_k, normalise=True, factor=1.0):
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


class ExpertStack:
    """Experts of one dtype placed one after the other, `padding` bytes apart."""

    def __init__(self, device, gate_up, down, dtype, padding=0):
        self.gate_up, self.exact_gate_up = self.place(device, gate_up, dtype, GATE_UP, padding)
        self.down, self.exact_down = self.place(device, down, dtype, LINEAR, padding)

    def place(self, device, values, dtype, role, padding):
        num_experts, num_rows, columns = values.shape
        first = structs()["glm_matrix"](dtype, role, num_rows, columns)
        size = device.matrix_bytes(first)
        stride, scale_stride = size + padding, 4 * num_rows + padding
        data = device.empty(max(num_experts, 1) * stride)
        scales = device.empty(max(num_experts, 1) * scale_stride)
        kept = [stored(each, dtype) for each in values]
        for expert, (array, scale, _) in enumerate(kept):
            struct = structs()["glm_matrix"](dtype, role, num_rows, columns)
            struct.data = data.value + expert * stride
            struct.row_scale = scales.value + expert * scale_stride if dtype == FP8 else None
            Matrix.fill(device, struct, array, scale, None, waits=False)
        device.synchronise()
        first.data = data.value
        first.row_scale = scales.value if dtype == FP8 else None
        return (first, stride, scale_stride), [exact for _, _, exact in kept]

    def matrices(self, expert: int):
        """gate_up and down of one expert, alone."""
        return [shifted(*part, expert) for part in (self.gate_up, self.down)]


def shifted(first, stride, scale_stride, expert):
    moved = type(first).from_buffer_copy(first)
    moved.data = first.data + expert * stride
    if first.row_scale:
        moved.row_scale = first.row_scale + expert * scale_stride
    return moved


class SharedExpert:
    """An expert of a stack of its own, and the id by which rows choose it."""

    def __init__(self, expert_id: int, stack: ExpertStack, index: int = 0):
        self.id, self.stack = expert_id, stack
        self.gate_up, self.down = stack.matrices(index)

    def fields(self) -> dict:
        return {
            "shared_expert_id": self.id,
            "shared_gate_up": addressof(self.gate_up),
            "shared_down": addressof(self.down),
        }


NOTHING_SHARED = {"shared_expert_id": NO_SHARED_EXPERT}


def expert_matrices(stack) -> dict:
    """What `experts` is told of the matrices of a stack."""
    gate_up, gate_up_stride, gate_up_scale_stride = stack.gate_up
    down, down_stride, down_scale_stride = stack.down
    return {
        "gate_up": addressof(gate_up),
        "down": addressof(down),
        "gate_up_stride": gate_up_stride,
        "gate_up_scale_stride": gate_up_scale_stride,
        "down_stride": down_stride,
        "down_scale_stride": down_scale_stride,
    }


def experts(
    device,
    stack: ExpertStack,
    values,
    ids,
    weights,
    begin=0,
    local=None,
    initial=None,
    shared: SharedExpert | None = None,
):
    """[tokens, hidden]: the weighted sum over the local experts, on top of `initial`."""
    output = activation_output(device, (len(ids), stack.gate_up[0].columns))
    device.run(
        "experts",
        num_tokens=len(ids),
        top_k=ids.shape[1],
        expert_begin=begin,
        num_local_experts=len(stack.exact_down) if local is None else local,
        input=activation(device, values),
        expert_ids=device.place(np.asarray(ids, np.int32)),
        expert_weights=device.place(np.asarray(weights, np.float32)),
        initial=None if initial is None else device.activation(initial),
        output=output.block,
        **expert_matrices(stack),
        **(shared.fields() if shared else NOTHING_SHARED),
    )
    return activation_values(output)


def rope_tables(device, theta, rotary_dim, num_positions):
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
