"""The order in which the CUDA device keeps weights, written down a second time in numpy."""

import numpy as np
import pytest

from glm_engine.verify.device import BF16, F32, FP8, GATE_UP, LINEAR, TABLE, Matrix, address
from glm_engine.verify.header import structs
from tests import shapes
from tests.native import calls

DTYPES = {"f32": F32, "bf16": BF16, "fp8": FP8}
ROLES = {"linear": LINEAR, "gate_up": GATE_UP, "table": TABLE}
TILE_ROWS, ROW_BYTES, CHUNK, PAIR = 128, 128, 16, 8
SHAPES = [(2, 1), (26, 13), (128, 64), (130, 65), (258, 300)]


@pytest.fixture
def packing(device):
    if not device.facts.packs_tiles:
        pytest.skip("the packed order is that of the CUDA device: --device-kind cuda runs it")
    return device


def interleaved(rows: np.ndarray) -> np.ndarray:
    """Gate rows and up rows in turns of eight, zero rows where a turn is not full."""
    half = len(rows) // 2
    turns = -(-half // PAIR)
    padded = np.zeros((2, turns * PAIR, rows.shape[1]), rows.dtype)
    padded[:, :half] = rows.reshape(2, half, -1)
    return padded.reshape(2, turns, PAIR, -1).swapaxes(0, 1).reshape(2 * turns * PAIR, -1)


def tiled(rows: np.ndarray) -> np.ndarray:
    """Bytes of rows [n, width] as tiles [row tile][column tile][row][swizzled chunk]."""
    tall, wide = -(-rows.shape[0] // TILE_ROWS), -(-rows.shape[1] // ROW_BYTES)
    padded = np.zeros((tall * TILE_ROWS, wide * ROW_BYTES), np.uint8)
    padded[: rows.shape[0], : rows.shape[1]] = rows
    tiles = padded.reshape(tall, TILE_ROWS, wide, ROW_BYTES // CHUNK, CHUNK).swapaxes(1, 2)
    row = np.arange(TILE_ROWS)[:, None] % 8
    chunk = np.arange(ROW_BYTES // CHUNK)[None] ^ row
    return tiles[:, :, np.arange(TILE_ROWS)[:, None], chunk]


def packed(array: np.ndarray, role: int) -> np.ndarray:
    rows = np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
    if role == TABLE:
        return rows.reshape(-1)
    return tiled(interleaved(rows) if role == GATE_UP else rows).reshape(-1)


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=shapes.shape_name)
def test_placed_rows(packing, shape, dtype, role):
    values = shapes.generator("packed", *shape).standard_normal(shape)
    array, scale, _ = calls.stored(values, dtype)
    placed = Matrix(packing, array, dtype, role, scale)
    expected = packed(array, role)
    assert packing.matrix_bytes(placed.struct) == expected.nbytes
    actual = packing.download(placed.struct.data, expected.shape, np.uint8)
    np.testing.assert_array_equal(actual, expected)


def test_rows_that_fill_many_staging_buffers(packing):
    codes = shapes.generator("many").integers(0, 256, (3001, 8192), np.uint8)
    scale = np.linspace(1, 2, 3001, dtype=np.float32)
    placed = Matrix(packing, codes, FP8, scale=scale)
    expected = packed(codes, LINEAR)
    actual = packing.download(placed.struct.data, expected.shape, np.uint8)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(packing.download(placed.struct.row_scale, (3001,), "f4"), scale)


def test_a_call_after_placing_sees_the_rows(packing):
    rows = shapes.generator("order").integers(0, 256, (2000, 4096), np.uint8)
    struct = structs()["glm_matrix"](FP8, TABLE, *rows.shape)
    struct.data = packing.empty(rows.nbytes).value
    struct.row_scale = packing.empty(4 * len(rows)).value
    scale = np.ones(len(rows), np.float32)
    packing.run(
        "place_rows",
        matrix=address(struct),
        num_rows=len(rows),
        source=rows.ctypes.data,
        source_row_stride=rows.shape[1],
        scale_source=scale.ctypes.data,
    )
    np.testing.assert_array_equal(packing.download(struct.data, rows.shape, np.uint8), rows)
