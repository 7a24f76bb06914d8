"""Capture and replay, on devices that have them."""

import ctypes

import numpy as np
import pytest

from tools.bindings.backend import BackendError, address, constants

INVALID = constants()["GLM_INVALID_ARGUMENT"]


@pytest.fixture
def capturing(device):
    if not device.info.supports_graphs:
        pytest.skip("this device captures no graphs: --device-kind cuda runs it")
    return device


@pytest.fixture
def selecting(capturing):
    """select_tokens of five tokens, whose rows, ids and output lie in device memory."""
    return Selecting(capturing)


class Selecting:
    def __init__(self, device):
        self.device = device
        self.blocks = {
            name: device.place(np.zeros(5, np.int32))
            for name in ("source_rows", "sampled_ids", "token_ids")
        }

    def write(self, **arrays):
        for name, values in arrays.items():
            self.device.upload(self.blocks[name], np.asarray(values, np.int32))

    def run(self):
        self.device.run("select_tokens", num_tokens=5, **self.blocks)

    def tokens(self):
        return self.device.download(self.blocks["token_ids"], (5,), np.int32).tolist()


def capture(device, work) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    device.check(device.table.graph_begin(device.handle))
    work()
    device.check(device.table.graph_end(device.handle, address(graph)))
    return graph


def test_a_replay_does_the_work_again_with_new_data(capturing, selecting):
    selecting.write(source_rows=[0, 1, 2, 3, 4], sampled_ids=[5, 6, 7, 8, 9], token_ids=[1] * 5)
    graph = capture(capturing, selecting.run)
    assert selecting.tokens() == [1] * 5
    for rows, expected in (
        ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]),
        ([4, -1, 0, -1, 1], [9, 6, 5, 8, 6]),
        ([-1, 3, 3, 3, -1], [9, 8, 8, 8, 6]),
    ):
        selecting.write(source_rows=rows)
        capturing.check(capturing.table.graph_replay(capturing.handle, graph))
        assert selecting.tokens() == expected
    capturing.check(capturing.table.graph_free(capturing.handle, graph))


def test_calls_that_wait_are_refused_while_capturing(capturing, selecting):
    selecting.write(token_ids=[3] * 5)
    capturing.check(capturing.table.graph_begin(capturing.handle))
    for status in (
        capturing.table.synchronise(capturing.handle),
        capturing.table.graph_begin(capturing.handle),
    ):
        assert status == INVALID
        assert "not allowed during graph capture" in capturing.message()
    with pytest.raises(BackendError, match="not allowed during graph capture"):
        capturing.allocate(8)
    selecting.run()
    capturing.check(capturing.table.graph_end(capturing.handle, None))
    assert selecting.tokens() == [3] * 5


def test_an_end_without_a_begin_is_refused(capturing):
    graph = ctypes.c_void_p()
    assert capturing.table.graph_end(capturing.handle, address(graph)) == INVALID
    assert "captures in progress: expected 1, got 0" in capturing.message()
