"""Capture and replay, on devices that have them."""

import ctypes

import numpy as np
import pytest

from glm_engine.verify.device import BackendError, address
from glm_engine.verify.header import constants

INVALID = constants()["GLM_INVALID_ARGUMENT"]


@pytest.fixture
def capturing(device):
    if not device.info.supports_graphs:
        pytest.skip("this device captures no graphs: --device-kind cuda runs it")
    return device


@pytest.fixture
def beginning(capturing):
    """begin_step of five rows, whose table rows, states and token ids lie in device memory."""
    return Beginning(capturing)


class Beginning:
    def __init__(self, device):
        self.device = device
        names = ("source_rows", "table_row", "row_offset", "page_table", "token_ids")
        names += ("positions", "slots", "context_length", "position")
        self.blocks = {name: device.place(np.zeros(5, np.int32)) for name in names}
        self.blocks["position_limit"] = device.place(np.full(5, 16, np.int32))
        self.blocks["states"] = device.place(np.ones((5, 4), np.int32))

    def write(self, **arrays):
        for name, values in arrays.items():
            self.device.upload(self.blocks[name], np.asarray(values, np.int32))

    def run(self):
        fields = {"num_rows": 5, "num_table_rows": 5, "page_size": 16, "page_table_stride": 1}
        self.device.run("begin_step", **fields, **self.blocks)

    def tokens(self):
        return self.device.download(self.blocks["token_ids"], (5,), np.int32).tolist()


def capture(device, work) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    device.check(device.table.graph_begin(device.handle))
    work()
    device.check(device.table.graph_end(device.handle, address(graph)))
    return graph


def test_a_replay_does_the_work_again_with_new_data(capturing, beginning):
    beginning.write(states=[[1, last_id, 0, -1] for last_id in range(5, 10)], token_ids=[1] * 5)
    graph = capture(capturing, beginning.run)
    assert beginning.tokens() == [1] * 5
    for rows, expected in (
        ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]),
        ([4, -1, 0, -1, 1], [9, 6, 5, 8, 6]),
        ([-1, 3, 3, 3, -1], [9, 8, 8, 8, 6]),
    ):
        beginning.write(source_rows=rows, table_row=np.maximum(rows, 0))
        capturing.check(capturing.table.graph_replay(capturing.handle, graph))
        assert beginning.tokens() == expected
    capturing.check(capturing.table.graph_free(capturing.handle, graph))


def test_calls_that_wait_are_refused_while_capturing(capturing, beginning):
    beginning.write(token_ids=[3] * 5)
    capturing.check(capturing.table.graph_begin(capturing.handle))
    for status in (
        capturing.table.synchronise(capturing.handle),
        capturing.table.graph_begin(capturing.handle),
    ):
        assert status == INVALID
        assert "not allowed during graph capture" in capturing.message()
    with pytest.raises(BackendError, match="not allowed during graph capture"):
        capturing.allocate(8)
    beginning.run()
    capturing.check(capturing.table.graph_end(capturing.handle, None))
    assert beginning.tokens() == [3] * 5


def test_an_end_without_a_begin_is_refused(capturing):
    graph = ctypes.c_void_p()
    assert capturing.table.graph_end(capturing.handle, address(graph)) == INVALID
    assert "captures in progress: expected 1, got 0" in capturing.message()
