"""Numbers with their units."""

import io
import re
import sys
import time

import pytest

from glm_engine.cli import command_line
from glm_engine.cli.options import CAPITALS
from glm_engine.commands import evaluate
from glm_engine.core import console
from glm_engine.core.console import (
    ProgressLines,
    bytes_progress,
    coloured,
    count_progress,
    human_bytes,
    human_count,
    human_number,
    human_rate,
    make_table,
    print_columns,
    print_json,
    print_table,
    rate,
    verdict,
)
from glm_engine.core.loading import load_engine, say
from glm_engine.core.requests import EngineOptions
from glm_engine.load.runs import InFlight


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


def test_bars_show_the_time_left(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with count_progress(10, "points", quiet=False) as advance:
        for _ in range(4):
            advance()
            time.sleep(0.15)
    assert "4/10" in terminal.getvalue()
    assert re.search(r"0:00:0\d", terminal.getvalue())


def test_a_bar_shows_what_runs(monkeypatch):
    terminal, flight = Terminal(), InFlight()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with count_progress(10, "requests", False, flight):
        flight.change(50)
        time.sleep(0.3)
    assert "0/10" in terminal.getvalue()
    assert "50 running" in terminal.getvalue()


def test_quiet_work_shows_nothing(capsys, monkeypatch):
    monkeypatch.setattr(console, "LINE_SECONDS", 0.01)
    with bytes_progress(quiet=True) as show, count_progress(3, "points", quiet=True) as advance:
        advance()
        time.sleep(0.05)
    assert show is None
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("is_dumb", [True, False])
def test_bytes_in_a_pipe_or_on_a_dumb_terminal_are_lines(monkeypatch, is_dumb):
    stream = Terminal() if is_dumb else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(console, "LINE_SECONDS", 0.05)
    monkeypatch.setenv("TERM", "dumb" if is_dumb else "xterm")
    with bytes_progress(quiet=False) as show:
        for done in range(1, 5):
            show(done * 10**9, 8 * 10**9, "pulling")
            time.sleep(0.05)
    lines = stream.getvalue().splitlines()
    form = r"glm: pulling: \d\.0 GB of 8\.0 GB, [\d.]+ GB/s, time left 0:00:0\d"
    assert any(re.fullmatch(form, line) for line in lines), lines
    assert "\r" not in stream.getvalue()


def test_a_line_has_the_rate_since_the_last_one_or_since_the_start():
    for is_recent, expected in ((False, "2.00/s, time left 0:00:25"), (True, "3.00/s")):
        lines = ProgressLines("points", human_number, 70, is_recent)
        lines.since = (100.0, 0)
        lines.update(5, 70, "")
        assert lines.line(105.0) == "points: 5 of 70, 1.00/s, time left 0:01:05"
        lines.update(20, 70, "")
        assert expected in lines.line(110.0)


def test_lines_without_a_total_or_a_rate_invent_neither():
    lines = ProgressLines("loading", human_bytes)
    assert lines.line(time.monotonic() + 1) == "loading: 0 B"
    lines.update(0, 100, "reading")
    assert lines.line(time.monotonic() + 1) == "reading: 0 B of 100 B, 0 B/s, time left unknown"


def test_loading_in_a_pipe_shows_lines(capsys, monkeypatch):
    monkeypatch.setattr(console, "LINE_SECONDS", 0.001)
    engine, _ = load_engine(EngineOptions(model_dir=str(CAPITALS), device="cpu"))
    engine.close()
    lines = capsys.readouterr().err.splitlines()
    form = r"glm: loading [a-z ]+: .* of .*B, .*B/s, time left (\d+:\d\d:\d\d|unknown)"
    assert any(re.fullmatch(form, line) for line in lines), lines


def test_colours_are_for_terminals_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    assert coloured("x", "error", terminal) == "\x1b[31mx\x1b[0m"
    assert coloured("x", "error", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("x", "error", terminal) == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert coloured("x", "error", terminal) == "x"


def test_errors_are_red_warnings_yellow_and_verdicts_green_or_red(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    errors, output = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr(sys, "stdout", output)
    assert command_line.main(["bench", "--show", "absent.json"]) == 2
    say("the context is short")
    first, second = errors.getvalue().splitlines()
    assert first.startswith("\x1b[31mglm: absent.json: ")
    assert first.endswith("\x1b[0m")
    assert second == "\x1b[33mglm: the context is short\x1b[0m"
    report = {"accuracy": 0.5, "threshold": 0.9, "passed": False, "wrong": [], "num_right": 1}
    sizes = {"num_asked": 2, "device": "CPU", "world_size": 1, "seconds": 1.0, "num_steps": 3}
    evaluate.print_report({**report, **sizes, "tokens_per_second": 1.0})
    assert "\x1b[31m50.0% (threshold 90%" in output.getvalue()
    assert verdict("Passed.", True) == "\x1b[32mPassed.\x1b[0m"
    assert verdict("Failed.", False) == "\x1b[31mFailed.\x1b[0m"


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
