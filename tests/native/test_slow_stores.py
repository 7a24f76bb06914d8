"""Decode attention behind a kernel that stores the step's tokens late.

The attention copies blocks of the cache before the kernel in front of it has ended, but none that
rows of the step may write, which `rows_per_sequence` tells it. The engine's own store is always
faster than that, so `build/tests/slow_store` puts a kernel in front which lets its successor start
at once and stores the blocks a millisecond later. It prints how many rows differ from those of an
attention behind a store that has ended, a line an attempt.
"""

import subprocess
from pathlib import Path

import pytest

from glm_engine.verify.device import BF16, FP8
from tests.devices import device_kind

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "tests" / "slow_store"
NUM_ATTEMPTS = 10
FEW_KV_HEADS = 2
HEADS_FOR_PAIRS = 80


def rows_that_differ(dtype: int, rows: int, told_rows: int, kv_heads: int) -> list[int]:
    if device_kind() != "cuda":
        pytest.skip("the stores are those of a GPU: --device-kind cuda runs it")
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is not built: `tools/develop --with cuda scons build/tests`")
    words = (dtype, rows, told_rows, NUM_ATTEMPTS, kv_heads)
    command = [str(PROGRAM), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [BF16, FP8], ids=["bf16", "fp8"])
def test_no_block_that_the_step_writes_is_read_early(dtype, rows):
    assert rows_that_differ(dtype, rows, rows, FEW_KV_HEADS) == [0] * NUM_ATTEMPTS


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("dtype", [BF16, FP8], ids=["bf16", "fp8"])
def test_nor_by_two_rows_that_share_a_read(dtype, rows):
    assert rows_that_differ(dtype, rows, rows, HEADS_FOR_PAIRS) == [0] * NUM_ATTEMPTS
    assert max(rows_that_differ(dtype, rows, 1, HEADS_FOR_PAIRS)) > 0


@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("dtype", [BF16, FP8], ids=["bf16", "fp8"])
def test_a_smaller_number_of_rows_would_read_old_blocks(dtype, rows):
    for told_rows in {1, rows - 1}:
        assert max(rows_that_differ(dtype, rows, told_rows, FEW_KV_HEADS)) > 0
