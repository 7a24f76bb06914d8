"""Limits, verdicts and the three forms of the report."""

import json
import math

import pytest

from tools.bench import report
from tools.bench.figures import Bound, Figure, Section, readable

MACHINE = {
    "date": "2026-01-01 00:00 UTC",
    "commit": "0123abcd",
    "processor": "a processor",
    "cores": 2,
    "memory_gib": 24.0,
    "system": "Linux 6",
    "load_average": 0.1,
    "versions": {"python": "3.11.2"},
}


def figure(value: float, bound: Bound = Bound.AT_MOST, limit: float | None = 150.0) -> Figure:
    return Figure("planning", value, "µs", bound, limit, "a note")


def section(*figures: Figure) -> Section:
    return Section("planning", "Planning one step", "How it is measured.", figures, {"runs": [1.0]})


@pytest.mark.parametrize(
    ("bound", "value", "is_kept"),
    [
        (Bound.AT_MOST, 149.9, True),
        (Bound.AT_MOST, 150.0, True),
        (Bound.AT_MOST, 150.1, False),
        (Bound.AT_MOST, math.nan, False),
        (Bound.AT_LEAST, 150.1, True),
        (Bound.AT_LEAST, 150.0, True),
        (Bound.AT_LEAST, 149.9, False),
        (Bound.AT_LEAST, math.nan, False),
    ],
)
def test_limits_include_their_own_value(bound, value, is_kept):
    assert figure(value, bound).is_kept is is_kept
    assert len(report.missed([section(figure(value, bound))])) == (0 if is_kept else 1)


def test_a_figure_without_a_limit_is_always_kept():
    free = Figure("prefill", math.nan, "tokens/s")
    assert free.is_kept
    assert report.row(free)[2:4] == ("", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(6.8734, "6.873 µs"), (150, "150 µs"), (5054.7, "5,055 µs"), (0.05, "0.05 µs")],
)
def test_readable_numbers(value, text):
    assert readable(value, "µs") == text


def test_json_holds_figures_machine_and_series():
    content = json.loads(report.as_json("scons bench", MACHINE, [section(figure(200.0))]))
    assert content["command"] == "scons bench"
    assert content["machine"] == MACHINE
    (row,) = content["sections"][0]["figures"]
    assert (row["value"], row["limit"], row["bound"], row["is_kept"]) == (200.0, 150.0, "≤", False)
    assert content["sections"][0]["series"] == {"runs": [1.0]}


def test_markdown_names_command_machine_method_and_verdict(tmp_path):
    plots = [tmp_path / "acceptance-planning.svg", tmp_path / "acceptance-planning.png"]
    page = report.as_markdown("scons bench", MACHINE, [section(figure(200.0))], plots)
    for words in (
        "| command | `scons bench` |",
        "a processor, 2 cores, 24.0 GiB, Linux 6",
        "How it is measured.",
        "| planning | 200 µs | ≤ 150 µs | missed | a note |",
        "![Planning one step](acceptance-planning.svg)",
    ):
        assert words in page


def test_the_table_shows_each_figure(capsys):
    report.print_section(section(figure(6.5), Figure("other", 1.0, "s")))
    printed = capsys.readouterr().out
    assert "6.5 µs" in printed
    assert "≤ 150 µs" in printed
    assert "kept" in printed
