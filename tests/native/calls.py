"""What tests of operations share: tolerances, and matrices of float64 values that are known."""

import numpy as np

from glm_engine.core.float8 import decode_bf16, encode_bf16
from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, GATE_UP, LINEAR, TABLE, Device, Matrix
from glm_engine.verify.steps import PROMPT
from tests.devices import device_kind
from tests.reference import fp8
from tests.reference.sampling import History

PLAIN_WEIGHTS = {"bf16": BF16} if device_kind() == "cuda" else {"f32": F32, "bf16": BF16}
WEIGHTS = {**PLAIN_WEIGHTS, "fp8": FP8}
FLOAT32_TOLERANCE = 1e-5
BF16_TOLERANCE = 5e-3


def tolerance(device: Device) -> float:
    return FLOAT32_TOLERANCE if device.activation_type == np.float32 else BF16_TOLERANCE


def values_of(given: op.Quantised) -> np.ndarray:
    """The float64 values that codes stand for."""
    return fp8.dequantise(given.codes, given.scale[:, None])


def assert_codes(
    device: Device, actual: op.Quantised, plain: np.ndarray, exact: np.ndarray
) -> None:
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
    if isinstance(given, op.Quantised):
        return op.Quantised(given.codes[part], given.scale[part])
    return given[part]


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


def table(device, values, dtype):
    array, _, exact = stored(values, dtype)
    return Matrix(device, array, dtype, TABLE), exact


class ExpertStack(op.ExpertStack):
    """Experts whose float64 values are known, `padding` bytes apart."""

    def __init__(self, device, gate_up, down, dtype, padding=0):
        parts = [(gate_up, GATE_UP), (down, LINEAR)]
        kept = [[stored(each, dtype) for each in values] for values, _ in parts]
        placed = [
            place_experts(device, rows, values.shape[1:], dtype, role, padding)
            for rows, (values, role) in zip(kept, parts, strict=True)
        ]
        super().__init__(*placed, len(gate_up))
        self.exact_gate_up, self.exact_down = ([each for *_, each in rows] for rows in kept)


def place_experts(device, kept, shape, dtype, role, padding) -> op.PlacedExperts:
    has_scales = dtype == FP8
    placed = op.empty_experts(device, len(kept), (dtype, role, *shape), has_scales, padding)
    for expert, (array, scale, _) in enumerate(kept):
        Matrix.fill(device, placed.of(expert), array, scale, None, waits=False)
    device.synchronise()
    return placed


def counted(outputs: np.ndarray, in_prompt: np.ndarray) -> tuple[list[History], np.ndarray]:
    """The rows' histories, and the counts that say the same to a device."""
    histories = [History(*pair) for pair in zip(outputs, in_prompt, strict=True)]
    return histories, (outputs + np.where(in_prompt, PROMPT, 0)).astype(np.uint32)
