"""Numbers with their units."""

import pytest

from glm_engine.console import (
    human_bytes,
    human_count,
    human_rate,
    print_columns,
    print_json,
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
