"""Steps of decode rows with prompts beside them: one small run, what cannot be measured."""

import json

import pytest
from click.testing import CliRunner

from glm_engine.core.layout import CAPITALS
from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench.mixed import main

SMALL = ["--synthetic", str(CAPITALS), "--device", "cpu", "--batch", "2,3", "--steps", "2"]


def test_a_small_run_measures_each_number_of_rows(tmp_path):
    output = tmp_path / "mixed.json"
    result = CliRunner().invoke(main, [*SMALL, "--prompt", "5,40", "--output", str(output)])
    assert result.exit_code == 0, result.output
    figures = json.loads(output.read_text())
    expected = [
        f"{batch} decode rows, {length} prompt tokens" for batch in (2, 3) for length in (0, 5, 40)
    ]
    assert [figure["name"] for figure in figures] == expected
    assert all(figure["value"] > 0 and figure["limit"] is None for figure in figures)
    lines = result.output.splitlines()
    assert [line.split("  ")[0] for line in lines] == expected


@pytest.mark.parametrize("layout", ["tensor_parallel", "expert_parallel"])
def test_ranks_share_the_rows(layout):
    asked = [*SMALL, "--world-size", "2", "--expert-layout", layout, "--prompt", "5"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) == 4


def test_many_rows_are_waited_for_before_their_steps_are_counted():
    asked = ["--synthetic", str(CAPITALS), "--device", "cpu", "--batch", "40", "--steps", "1"]
    result = CliRunner().invoke(main, [*asked, "--prompt", "5"])
    assert result.exit_code == 0, result.output
    assert len(result.output.splitlines()) == 2


@pytest.mark.parametrize("asked", [["--batch", "0"], ["--prompt", "a"], ["--steps", "-1"]])
def test_numbers_that_are_none_are_refused(asked):
    expect_refused(main, asked, asked[0])


@pytest.mark.parametrize(
    ("asked", "said"),
    [(["--synthetic", "nosuch"], "nosuch: "), (["--output", "/proc/absent/mixed"], "/proc/absent")],
)
def test_what_cannot_be_read_or_written_is_one_line(asked, said):
    expect_one_line(main, asked, said)
