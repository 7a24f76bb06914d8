import ctypes
from contextlib import contextmanager

import numpy as np
import pytest

from glm_engine.verify.paging import Heads, PagedCache
from tests import shapes

NUM_PAGES = 7


@pytest.fixture
def cache(device):
    return PagedCache(device, Heads(2, 2, 5), 3, NUM_PAGES, 4)


def fill(cache):
    size = (NUM_PAGES, cache.struct.num_layers, cache.page_bytes // cache.struct.num_layers)
    pages = shapes.generator("fill").integers(0, 256, size, np.uint8)
    cache.fill(pages)
    return pages


@pytest.mark.parametrize("moves", [[], [(2, 5)], [(6, 0), (1, 4), (3, 3)]])
def test_copy_pages(device, cache, moves):
    expected = fill(cache)
    ids = np.array(moves, np.int32).reshape(-1, 2).T.copy()
    device.run(
        "copy_pages",
        cache=cache.pointer,
        num_pages=len(moves),
        source_pages=ids[0].ctypes.data,
        destination_pages=ids[1].ctypes.data,
    )
    for source, destination in moves:
        expected[destination] = expected[source]
    np.testing.assert_array_equal(cache.contents(), expected)


@pytest.mark.parametrize("pages", [[], [6], [4, 0, 2]])
def test_saved_pages_come_back_in_other_places(device, cache, pages):
    expected = fill(cache)
    host = np.zeros((max(1, len(pages)), cache.page_bytes), np.uint8)
    fields = {"cache": cache.pointer, "num_pages": len(pages), "host_data": host.ctypes.data}
    saved, others = (np.array(each[: len(pages)], np.int32) for each in (pages, [1, 3, 5]))
    device.run("save_pages", pages=saved.ctypes.data, **fields)
    device.run("restore_pages", pages=others.ctypes.data, **fields)
    expected[others] = expected[pages]
    np.testing.assert_array_equal(cache.contents(), expected)


@contextmanager
def host_memory(device, num_bytes, is_pinned):
    """Memory of the host, page-locked or not, as an array."""
    if not is_pinned:
        yield np.zeros(num_bytes, np.uint8)
        return
    memory = ctypes.c_void_p()
    device.check(device.table.host_allocate(device.handle, num_bytes, ctypes.addressof(memory)))
    yield np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(memory.value))
    device.check(device.table.host_release(device.handle, memory))


def assert_saved_and_restored(device, cache, pages, host):
    order = shapes.generator("transfer").permutation(len(pages)).astype(np.int32)
    fields = {"cache": cache.pointer, "num_pages": len(order), "host_data": host.ctypes.data}
    device.run("save_pages", pages=order.ctypes.data, **fields)
    np.testing.assert_array_equal(host, pages[order].reshape(host.shape))
    others = np.roll(order, 1)
    device.run("restore_pages", pages=others.ctypes.data, **fields)
    pages[others] = pages[order]
    np.testing.assert_array_equal(cache.contents(), pages)


@pytest.mark.parametrize("is_pinned", [False, True], ids=["pageable", "pinned"])
@pytest.mark.parametrize(("num_pages", "num_layers", "page_size"), [(300, 3, 16), (3, 2, 2064)])
def test_transfers_past_a_slot_of_the_staging(device, num_pages, num_layers, page_size, is_pinned):
    cache = PagedCache(device, Heads(2, 2, 128), num_layers, num_pages, page_size)
    size = (num_pages, num_layers, cache.page_bytes // num_layers)
    pages = shapes.generator("slots").integers(0, 256, size, np.uint8)
    cache.fill(pages)
    with host_memory(device, pages.nbytes, is_pinned) as host:
        assert_saved_and_restored(device, cache, pages, host)


def test_more_pages_than_one_launch_takes(device):
    many = PagedCache(device, Heads(1, 1, 8), 2, 700, 16)
    size = (700, 2, many.page_bytes // 2)
    pages = shapes.generator("many pages").integers(0, 256, size, np.uint8)
    many.fill(pages)
    order = shapes.generator("page order").permutation(700).astype(np.int32)
    source, destination = order[:350].copy(), order[350:].copy()
    fields = {"source_pages": source.ctypes.data, "destination_pages": destination.ctypes.data}
    device.run("copy_pages", cache=many.pointer, num_pages=350, **fields)
    pages[destination] = pages[source]
    np.testing.assert_array_equal(many.contents(), pages)
    host = np.zeros((700, many.page_bytes), np.uint8)
    device.run(
        "save_pages",
        cache=many.pointer,
        num_pages=700,
        pages=order.ctypes.data,
        host_data=host.ctypes.data,
    )
    np.testing.assert_array_equal(host, pages[order].reshape(700, -1))
