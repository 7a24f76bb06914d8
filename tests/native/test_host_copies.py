"""Copies between device memory and memory of host_allocate: any length, any place, in order."""

import ctypes

import numpy as np
import pytest

from glm_engine.verify.device import POISON, address
from tests import shapes

ROOM = 1 << 19
SIZES = (1, 4, 13, 16, 4096, 65_532, 100_003, 262_144, 262_148)
SHIFTS = (0, 1, 4, 16)
NUM_TURNS = 40


class Pinned:
    """Poisoned memory of host_allocate as an array of bytes."""

    def __init__(self, device):
        self.device, self.memory = device, ctypes.c_void_p()
        device.check(device.table.host_allocate(device.handle, ROOM, address(self.memory)))
        pointer = ctypes.cast(self.memory, ctypes.POINTER(ctypes.c_uint8))
        self.bytes = np.ctypeslib.as_array(pointer, (ROOM,))
        self.bytes[:] = POISON

    def at(self, begin: int) -> int:
        return self.memory.value + begin

    def release(self):
        self.device.synchronise()
        self.device.check(self.device.table.host_release(self.device.handle, self.memory))


@pytest.fixture
def pinned(device):
    """Two blocks of host memory."""
    blocks = [Pinned(device) for _ in range(2)]
    yield blocks
    for block in blocks:
        block.release()


def upload(device, block, begin, source, size):
    device.check(device.table.upload(device.handle, block.value + begin, source, size))


def begin_download(device, target, block, begin, size):
    device.check(device.table.download_begin(device.handle, target, block.value + begin, size))


def surrounded(values: np.ndarray, begin: int) -> np.ndarray:
    expected = np.full(ROOM, POISON, np.uint8)
    expected[begin : begin + values.size] = values
    return expected


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("size", SIZES)
def test_an_upload_writes_its_bytes_and_no_others(device, pinned, size, shift):
    values = shapes.generator("pinned", size, shift).integers(0, 256, size, np.uint8)
    source, _ = pinned
    source.bytes[shift : shift + size] = values
    for begin in (0, shift, 48 + shift):
        block = device.empty(ROOM)
        upload(device, block, begin, source.at(shift), size)
        placed = device.download(block, (ROOM,), np.uint8)
        np.testing.assert_array_equal(placed, surrounded(values, begin))


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("size", SIZES)
def test_a_queued_download_writes_its_bytes_and_no_others(device, pinned, size, shift):
    values = shapes.generator("queued", size, shift).integers(0, 256, size, np.uint8)
    block, target = device.place(surrounded(values, shift)), pinned[1]
    for begin in (0, shift, 48 + shift):
        target.bytes[:] = POISON
        begin_download(device, target.at(begin), block, shift, size)
        device.synchronise()
        np.testing.assert_array_equal(target.bytes, surrounded(values, begin))


def test_copies_keep_the_order_in_which_they_are_queued(device, pinned):
    rng = shapes.generator("order")
    source, target = pinned
    source.bytes[:] = rng.integers(0, 256, ROOM, np.uint8)
    block, expected = device.empty(ROOM), []
    for turn in range(NUM_TURNS):
        size = int(rng.choice([4, 16, 52, 2048, 4096]))
        begin = 4 * int(rng.integers(0, (ROOM - size) // 4))
        upload(device, block, 0, source.at(begin), size)
        begin_download(device, target.at(4096 * turn), block, 0, size)
        expected.append((4096 * turn, source.bytes[begin : begin + size].copy()))
    device.synchronise()
    for begin, values in expected:
        np.testing.assert_array_equal(target.bytes[begin : begin + values.size], values)


def test_a_captured_upload_reads_the_host_again_at_each_replay(device, pinned):
    if not device.info.supports_graphs:
        pytest.skip("this device captures no graphs: --device-kind cuda runs it")
    source, graph, block = pinned[0], ctypes.c_void_p(), device.empty(ROOM)
    device.check(device.table.graph_begin(device.handle))
    upload(device, block, 0, source.at(0), 4096)
    device.check(device.table.graph_end(device.handle, address(graph)))
    for value in (1, 2, 3):
        source.bytes[:4096] = value
        device.check(device.table.graph_replay(device.handle, graph))
        np.testing.assert_array_equal(device.download(block, (4096,), np.uint8), value)
    device.check(device.table.graph_free(device.handle, graph))
