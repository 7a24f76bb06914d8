"""The table of exchanges, with NCCL's column and without; what cannot be measured is one line."""

import pytest

from glm_engine.verify.device import LIBRARY_VARIABLE
from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench.exchanges import NOT_MEASURED, ROWS, main, table

MEASURED = [(1.5, 2.0)] * len(ROWS)


def test_the_slowest_rank_stands_beside_nccls():
    rows = table(2, 5120, MEASURED, [(7.25, 3.0)] * len(ROWS))
    assert rows[0] == ("1", "2.00", "7.25", "10.2")
    assert [row[0] for row in rows] == [str(count) for count in ROWS]


def test_without_nccl_its_column_is_a_dash():
    without = table(2, 5120, MEASURED, [()] * len(ROWS))
    assert without[1] == ("2", "2.00", NOT_MEASURED, "20.5")


@pytest.mark.parametrize(
    "asked", [["--world-size", "1"], ["--width", "a"], ["--ranks-per-device", "9"]]
)
def test_numbers_that_are_none_are_refused(asked):
    expect_refused(main, asked, asked[0])


def test_without_the_library_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path))
    expect_one_line(main, [], "libglm_cuda.so")
