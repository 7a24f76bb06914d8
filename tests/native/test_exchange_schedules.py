"""The order of exchanges between ranks, without a GPU: random schedules of sends, arrivals in any
order, reads and clearing, with the buffers in the turns that the CUDA device takes
(native/collectives/peer/turns.hpp), eager calls and graphs of any numbers of rows mixed. Of half
of the exchanges a producer sends the words before the norm kernel starts, and in half each row has
an owner who adds it, and sends the sum or, where rows are scattered, keeps it and stores its codes
into those of all ranks, which meet and read them. Each rank has its own number of blocks, which
take their rows in order.

`build/tests/exchange SCHEDULES SEED turns` runs more of them.
"""

import subprocess
from pathlib import Path

import pytest

from tests.shapes import run_seed

PROGRAM = Path(__file__).resolve().parents[2] / "build" / "tests" / "exchange"
NUM_SCHEDULES = 10_000


def run(rules: str) -> subprocess.CompletedProcess:
    command = [PROGRAM, str(NUM_SCHEDULES), str(run_seed()), rules]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_word_is_lost_overwritten_or_left():
    done = run("turns")
    assert (done.returncode, done.stdout) == (0, f"{NUM_SCHEDULES} schedules without a fault\n")


@pytest.mark.parametrize(
    "rules",
    [
        *("one-buffer", "early-producers", "early-owners"),
        *("rowless-ranks", "late-readers", "no-meetings"),
    ],
)
def test_other_rules_would_lose_words(rules):
    """One buffer for all exchanges; producers that send before the kernel before them has ended;
    owners who send a sum when the first part of it has come; sums scattered over ranks some of
    which own no row and wait for nobody; ranks that read a row's codes after their part of its next
    sum has gone out, or that read codes before all ranks have met."""
    done = run(rules)
    assert done.returncode == 1
    faults = ("overwritten before it was cleared", "another exchange")
    assert any(fault in done.stdout for fault in faults)


def test_ranks_that_take_their_rows_in_two_orders_would_wait_for_each_other():
    done = run("two-orders")
    assert done.returncode == 1
    assert "a rank waits for ever" in done.stdout
