"""The page of figures: its tables are those of the files, and no file lies unused."""

import json
import re
from pathlib import Path

from click.testing import CliRunner

from tests.bench.refusals import expect_one_line
from tools.bench import figures
from tools.bench.figures import ABSENT, PAGE, Decode, decode_row, main

PATTERN = re.compile(r"`(\*-\S+\.json)`")
POINTS = [
    {"batch": 1, "context": 128, "tokens_per_second": 200.0, "floor_tokens_per_second": 400.0},
    {"batch": 8, "context": 128, "tokens_per_second": 1234.5, "share_of_floor": 0.614},
    {"batch": 16, "context": 8192, "tokens_per_second": 700.0, "share_of_floor": 0.9},
    {"batch": 64, "context": 128, "skipped": "needs pages"},
]


def run(page: Path, *options: str):
    return CliRunner().invoke(main, ["--page", str(page), *options])


def test_the_committed_page_is_what_the_command_makes():
    result = run(PAGE)
    assert result.exit_code == 0, result.output


def test_a_changed_number_is_seen_and_written_anew(tmp_path):
    page, text = tmp_path / "page.md", PAGE.read_text(encoding="utf-8")
    page.write_text(text.replace("| 238 |", "| 239 |"), encoding="utf-8")
    result = run(page)
    assert result.exit_code == 1
    assert "its tables are not those of the files; use --write" in result.stderr
    assert run(page, "--write").exit_code == 0
    assert page.read_text(encoding="utf-8") == text


def test_a_page_without_one_of_the_tables_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8").replace("<!--kernels-->", ""))
    expect_one_line(main, ["--page", str(page)], "expected the tables peers-decode, ")


def test_every_file_of_the_benchmarks_is_one_that_the_page_names():
    text = PAGE.read_text(encoding="utf-8")
    named = {PAGE.parent / name for name in re.findall(r"\((benchmarks/\S+)\)", text)}
    for pattern in PATTERN.findall(text):
        named |= set((figures.FOLDER / figures.PEERS).glob(pattern))
    drawn = figures.FOLDER / "comparison.svg"
    lying = {path for path in figures.FOLDER.rglob("*") if path.suffix in (".json", ".png", ".svg")}
    assert lying == named | {drawn}


def test_a_row_of_decode_holds_the_fastest_rates_and_their_share_of_the_floor(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(figures, "FOLDER", tmp_path)
    ours = {"decode": POINTS, "prefill": [{"tokens": 1024, "seconds": 0.0123}]}
    other = {"rows": [{"batch": 1, "decode_tok_s": 210.0}, {"batch": 8, "decode_tok_s": 9.0}]}
    for name, content in (("ours", ours), ("other", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    link = "[a](benchmarks/ours.json)"
    none, rest = ABSENT, [ABSENT] * 4
    alone = [link, "200 (50%)", "1,234 (61%)", *rest, "12.3", none]
    assert list(decode_row(Decode("a", ["ours"]))) == alone
    both = [f"{link}, [2](benchmarks/other.json)", "210", "1,234 (61%)", *rest, "12.3", none]
    assert list(decode_row(Decode("a", ["ours", "other"]))) == both
    long = list(decode_row(Decode("a", ["ours"], 8192)))
    assert long == [link, none, none, "700 (90%)", none, none, none, none, none]
