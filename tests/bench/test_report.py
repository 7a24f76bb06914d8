"""Limits, verdicts and the forms of the report."""

import json
import math

import pytest

from tools.bench import report
from tools.bench.report import Bound, Figure, Section, readable

MACHINE = {"date": "2026-01-01 00:00 UTC", "commit": "0123abcd", "versions": {"python": "3.11.2"}}


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


def test_the_report_holds_figures_machine_and_series():
    content = report.as_dict("scons bench", MACHINE, [section(figure(200.0))])
    assert json.loads(json.dumps(content)) == content
    assert content["command"] == "scons bench"
    assert content["machine"] == MACHINE
    (row,) = content["sections"][0]["figures"]
    assert (row["value"], row["limit"], row["bound"], row["is_kept"]) == (200.0, 150.0, "≤", False)
    assert content["sections"][0]["series"] == {"runs": [1.0]}


def test_a_markdown_table():
    titles = report.counted("tokens/s", "batch {}", (1, 1024))
    assert report.markdown([titles, ("a", "1", "2")]) == [
        "| tokens/s | batch 1 | 1,024 |",
        "|---|---|---|",
        "| a | 1 | 2 |",
    ]


def test_the_table_shows_each_figure(capsys):
    report.print_section(section(figure(6.5), Figure("other", 1.0, "s")))
    printed = capsys.readouterr().out
    assert "6.5 µs" in printed
    assert "≤ 150 µs" in printed
    assert "kept" in printed
