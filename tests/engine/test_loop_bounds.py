"""What Terra's `for i = a, b do` covers: all from a below b, nothing when b ≤ a."""

import ctypes

import pytest

from tests.engine.probes import library


@pytest.mark.parametrize(
    ("begin", "finish"), [(0, 0), (0, 1), (0, 2), (0, 1000), (-3, 2), (5, 5), (5, 4), (7, 0)]
)
def test_the_end_of_a_loop_is_excluded(begin, finish):
    last = ctypes.c_int32(begin - 1)
    count = library().count_loop_iterations(begin, finish, last)
    assert count == max(0, finish - begin)
    assert last.value == (finish - 1 if count else begin - 1)


@pytest.mark.parametrize(
    ("begin", "finish", "by"),
    [(0, 10, 1), (0, 10, 3), (0, 9, 3), (0, 0, 2), (10, 0, -1), (9, 0, -3)],
)
def test_the_end_of_a_stepped_loop_is_excluded(begin, finish, by):
    assert library().count_stepped_iterations(begin, finish, by) == len(range(begin, finish, by))
