"""The loader's containers at 0, 1 and the sizes where they grow."""

import pytest

from tests.engine import loader

CHUNK_BYTES = 65536


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1000, 100_000])
def test_map(count):
    assert loader.library().loader_exercise_map(count) == 0


@pytest.mark.parametrize("count", [0, 1, 2, 100])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, CHUNK_BYTES - 8, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_arena(count, size):
    assert loader.library().loader_exercise_arena(count, size) == 0
