"""Events, queued downloads, ids fed back, random weights, the rate of reading."""

import ctypes

import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16
from glm_engine.verify.device import BF16, F32, FP8, GATE_UP, LINEAR, Matrix, address
from glm_engine.verify.header import structs
from tests import shapes
from tests.native import calls
from tests.reference import fp8

DTYPES = {"f32": F32, "bf16": BF16, "fp8": FP8}


def event(device):
    made = ctypes.c_void_p()
    device.check(device.table.event_create(device.handle, address(made)))
    return made


def test_events_measure_the_time_between_them(device):
    table, handle = device.table, device.handle
    begin, end, elapsed = event(device), event(device), ctypes.c_float(-1)
    values = np.zeros(1 << 20, np.uint8)
    data = device.allocate(values.nbytes)
    device.check(table.event_record(handle, begin))
    device.upload(data, values)
    device.check(table.event_record(handle, end))
    device.check(table.event_synchronise(handle, end))
    device.check(table.event_elapsed(handle, begin, end, address(elapsed)))
    assert 0 <= elapsed.value < 1000
    for each in (begin, end):
        device.check(table.event_free(handle, each))


def test_the_time_of_events_that_were_not_recorded_is_refused(device):
    begin, end, elapsed = event(device), event(device), ctypes.c_float()
    status = device.table.event_elapsed(device.handle, begin, end, address(elapsed))
    assert status == 1
    for each in (begin, end):
        device.check(device.table.event_free(device.handle, each))


def test_queued_downloads_are_there_after_their_event(device):
    values = shapes.generator("download").integers(0, 256, 100_003, np.uint8)
    memory, passed = ctypes.c_void_p(), event(device)
    device.check(device.table.host_allocate(device.handle, values.size, address(memory)))
    host = np.ctypeslib.as_array(ctypes.cast(memory, ctypes.POINTER(ctypes.c_uint8)), values.shape)
    host[:] = 0
    source = device.place(values)
    device.check(device.table.download_begin(device.handle, memory, source, values.size))
    device.check(device.table.event_record(device.handle, passed))
    device.check(device.table.event_synchronise(device.handle, passed))
    np.testing.assert_array_equal(host, values)
    device.check(device.table.event_free(device.handle, passed))
    device.check(device.table.host_release(device.handle, memory))


def random_matrix(device, shape, dtype, role, seed):
    array, scale, _ = calls.stored(np.ones(shape), dtype)
    placed = Matrix(device, array, dtype, role, scale, np.ones(shape[0]))
    device.run("place_random", matrix=placed.pointer, seed=seed, standard_deviation=0.02)
    return placed


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("role", [LINEAR, GATE_UP], ids=["linear", "gate_up"])
def test_random_weights(device, dtype, role):
    shape = (130, 150)
    placed = [random_matrix(device, shape, dtype, role, seed) for seed in (1, 1, 2)]
    size = (device.matrix_bytes(placed[0].struct),)
    first, same, other = (device.download(each.struct.data, size, np.uint8) for each in placed)
    np.testing.assert_array_equal(first, same)
    assert np.mean(first[first != 0] != other[first != 0]) > 0.5
    decoded = {
        F32: lambda: first.view(np.float32),
        BF16: lambda: decode_bf16(first.view(np.uint16)),
        FP8: lambda: (
            fp8.ALL_VALUES[first] * device.download(placed[0].struct.row_scale, shape[:1], "f4")[0]
        ),
    }
    values = np.asarray(decoded[dtype](), np.float64)
    values = values[values != 0]
    assert values.size >= 0.99 * shape[0] * shape[1]
    assert np.std(values) == pytest.approx(0.02, rel=0.03)
    assert abs(np.mean(values)) < 0.001
    bias = device.download(placed[0].struct.bias, shape[:1], "f4")
    np.testing.assert_array_equal(bias, np.zeros(shape[0]))


def test_random_weights_of_no_size_are_refused(device):
    matrix = structs()["glm_matrix"](F32, 0, 4, 3, device.empty(1 << 16).value)
    with pytest.raises(RuntimeError, match="standard_deviation: expected a finite number above 0"):
        device.run("place_random", matrix=address(matrix), standard_deviation=0.0)


def test_the_rate_of_reading(device):
    rate = ctypes.c_double()
    values = np.zeros(64 << 20, np.uint8)
    memory = device.place(values)
    device.check(device.table.measure_read(device.handle, memory, values.nbytes, address(rate)))
    assert 1e8 < rate.value < 1e14
