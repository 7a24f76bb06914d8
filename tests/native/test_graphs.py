"""Capture and replay, on devices that have them."""

import ctypes

import numpy as np
import pytest

from tests.native.backend import BackendError, address, constants
from tests.native.paging import Heads, PagedCache

INVALID = constants()["GLM_INVALID_ARGUMENT"]


@pytest.fixture
def capturing(device):
    if not device.info.supports_graphs:
        pytest.skip("this device captures no graphs")
    return device


@pytest.fixture
def cache(capturing):
    return PagedCache(capturing, Heads(2, 2, 8), 2, 5, 16)


def capture(device, work) -> ctypes.c_void_p:
    graph = ctypes.c_void_p()
    device.check(device.table.graph_begin(device.handle))
    work()
    device.check(device.table.graph_end(device.handle, address(graph)))
    return graph


def copy(device, cache, source, destination):
    fields = {"source_pages": source, "destination_pages": destination}
    device.run("copy_pages", cache=cache.pointer, num_pages=1, **fields)


def filled(cache):
    size = (5, 2, cache.page_bytes // 2)
    pages = np.arange(np.prod(size), dtype=np.uint64).astype(np.uint8).reshape(size) + 1
    pages += np.arange(5, dtype=np.uint8)[:, None, None]
    cache.fill(pages)
    return pages


def test_a_replay_does_the_work_again_with_new_data(capturing, cache):
    expected = filled(cache)
    source, destination = (capturing.place(np.array([page], np.int32)) for page in (0, 3))
    graph = capture(capturing, lambda: copy(capturing, cache, source, destination))
    np.testing.assert_array_equal(cache.contents(), expected)
    for pages in ((0, 3), (2, 4), (1, 0)):
        for block, page in zip((source, destination), pages, strict=True):
            capturing.upload(block, np.array([page], np.int32))
        capturing.check(capturing.table.graph_replay(capturing.handle, graph))
        expected[pages[1]] = expected[pages[0]]
        np.testing.assert_array_equal(cache.contents(), expected)
    capturing.check(capturing.table.graph_free(capturing.handle, graph))


def test_calls_that_wait_are_refused_while_capturing(capturing, cache):
    expected = filled(cache)
    capturing.check(capturing.table.graph_begin(capturing.handle))
    for status in (
        capturing.table.synchronise(capturing.handle),
        capturing.table.graph_begin(capturing.handle),
    ):
        assert status == INVALID
        assert "none while a graph is captured" in capturing.message()
    with pytest.raises(BackendError, match="while a graph is captured"):
        capturing.allocate(8)
    capturing.check(capturing.table.graph_end(capturing.handle, None))
    np.testing.assert_array_equal(cache.contents(), expected)


def test_an_end_without_a_begin_is_refused(capturing):
    graph = ctypes.c_void_p()
    assert capturing.table.graph_end(capturing.handle, address(graph)) == INVALID
    assert "captures that were begun: expected 1, got 0" in capturing.message()
