"""Loading with one rank and with several: one small run, and what cannot be loaded."""

import pytest
from click.testing import CliRunner

from glm_engine.core.layout import CAPITALS
from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench.loading import TITLES, main, row

SMALL = ["--synthetic", str(CAPITALS), "--layers", "2", "--device", "cpu"]


def test_a_small_run_measures_one_rank_and_several(tmp_path):
    result = CliRunner().invoke(main, [*SMALL, "--world-size", "4", "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    first, titles, *rows = result.output.splitlines()
    assert "2 layers" in first
    assert titles.split("  ")[0] == TITLES[0].removeprefix(">")
    cells = [line.split() for line in rows]
    assert [cell[:2] for cell in cells] == [
        [ranks, place] for ranks in "14" for place in ("disk", "memory")
    ]
    assert [cell[4] for cell in cells[1::2]] == ["0.000", "0.000"]
    assert not list(tmp_path.iterdir()), "the checkpoint was left behind"


def test_a_row_says_how_often_the_disk_gave_each_byte():
    told = {"seconds": 4.0, "bytes_from_disk": 3_000_000_000}
    cells = ("2", "disk", "4.00", "0.50", "3.000", "150.0%")
    assert row(2, True, told, 2_000_000_000) == cells


@pytest.mark.parametrize(
    "asked", [["--layers", "0"], ["--world-size", "3"], ["--ranks-per-device", "a"]]
)
def test_numbers_that_are_none_are_refused(asked):
    expect_refused(main, asked, asked[0])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--synthetic", "nosuch"], "nosuch: "),
        (["--folder", "/proc/absent"], "/proc/absent"),
        ([*SMALL[:2], "--layers", "9"], "--layers is 9"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(asked, said):
    expect_one_line(main, asked, said)


@pytest.mark.parametrize("text", ["{", "[]", "", "{}", '{"num_hidden_layers": 9}'])
def test_a_config_that_is_none_is_one_line(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    expect_one_line(main, ["--synthetic", str(path)], f"{path}: ")
