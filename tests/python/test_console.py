"""Numbers with their units."""

import io
import re
import sys
import time

import pytest

from glm_engine.console import (
    bytes_progress,
    human_bytes,
    human_count,
    human_rate,
    make_table,
    print_columns,
    print_json,
    print_table,
    rate,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (354_902_000_000, "354.9 GB"),
        (10**18, "1000.0 PB"),
    ],
)
def test_bytes(count, text):
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0"), (1234, "1.23 k"), (352_797_829_024, "352.80 B")]
)
def test_counts(count, text):
    assert human_count(count) == text


@pytest.mark.parametrize(
    ("tokens", "seconds", "text"),
    [(10, 2, "5.0 tokens/s"), (0, 2, "not measured"), (10, 0, "not measured")],
)
def test_rates(tokens, seconds, text):
    assert human_rate(rate(tokens, seconds)) == text


def test_json_refuses_what_json_has_not():
    with pytest.raises(ValueError, match="Out of range"):
        print_json({"a": float("nan")})


def test_columns_are_aligned(capsys):
    print_columns(["name", ">bytes", "file"], [("a", "1,000", ""), ("longer", "2", "f")])
    assert capsys.readouterr().out == ("name    bytes  file\na       1,000\nlonger      2  f\n")


def test_no_rows_leave_the_titles(capsys):
    print_columns(["a", ">b"], [])
    assert capsys.readouterr().out == "a  b\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_bar_of_a_load_shows_bytes_and_their_rate(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with bytes_progress(quiet=False) as show:
        for done in range(1, 5):
            show(done * 10**10, 4 * 10**10, "placing weights")
            time.sleep(0.12)
    shown = terminal.getvalue()
    assert "placing weights" in shown
    assert "40.0/40.0 GB" in shown
    assert re.search(r"\d GB/s", shown)


def test_no_bar_where_nobody_looks(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with bytes_progress(quiet=False) as show:
        assert show is None


@pytest.mark.parametrize("columns", ["20", "40", "200"])
def test_a_narrow_terminal_cuts_no_number(monkeypatch, columns):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    table = make_table("name", *(f">number {at}" for at in range(6)), title="numbers")
    table.add_row("some words", *["123,456,789.5"] * 6)
    print_table(table)
    assert terminal.getvalue().count("123,456,789.5") == 6
    assert terminal.getvalue().count("number ") == 6
    assert "\u2026" not in terminal.getvalue()


def test_columns_of_text_are_folded_and_not_cut(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    table = make_table("name", ">size")
    table.add_row(" ".join(["word"] * 20), "12")
    print_table(table)
    lines = terminal.getvalue().splitlines()
    assert terminal.getvalue().count("word") == 20
    assert max(map(len, lines[1:])) <= 30
