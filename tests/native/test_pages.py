import numpy as np
import pytest

from tests import shapes
from tests.native.paging import Heads, PagedCache

NUM_PAGES = 7


@pytest.fixture
def cache(device):
    return PagedCache(device, Heads(2, 2, 5), 3, NUM_PAGES, 4)


def fill(cache):
    size = (NUM_PAGES, cache.struct.num_layers, cache.page_bytes // cache.struct.num_layers)
    pages = shapes.generator("fill").integers(0, 256, size, np.uint8)
    cache.fill(pages)
    return pages


def ids(device, pages):
    return device.place(np.asarray(pages, np.int32))


@pytest.mark.parametrize("moves", [[], [(2, 5)], [(6, 0), (1, 4), (3, 3)]])
def test_copy_pages(device, cache, moves):
    expected = fill(cache)
    device.run(
        "copy_pages",
        cache=cache.pointer,
        num_pages=len(moves),
        source_pages=ids(device, [source for source, _ in moves]),
        destination_pages=ids(device, [destination for _, destination in moves]),
    )
    for source, destination in moves:
        expected[destination] = expected[source]
    np.testing.assert_array_equal(cache.contents(), expected)


@pytest.mark.parametrize("pages", [[], [6], [4, 0, 2]])
def test_saved_pages_come_back_in_other_places(device, cache, pages):
    expected = fill(cache)
    host = np.zeros((max(1, len(pages)), cache.page_bytes), np.uint8)
    fields = {"cache": cache.pointer, "num_pages": len(pages), "host_data": host.ctypes.data}
    device.run("save_pages", pages=ids(device, pages), **fields)
    others = [1, 3, 5][: len(pages)]
    device.run("restore_pages", pages=ids(device, others), **fields)
    expected[others] = expected[pages]
    np.testing.assert_array_equal(cache.contents(), expected)
