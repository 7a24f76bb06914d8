"""The budget of words: each way to break it, and the command that writes the numbers."""

import subprocess

import pytest

from tools.check import words
from tools.check.words import Budget, complaints

KEPT = {"a.md": 100, "b.md": 250}


@pytest.mark.parametrize(
    ("counts", "files", "found"),
    [
        ({"a.md": 100, "b.md": 1}, KEPT, []),
        (
            {"a.md": 101, "b.md": 250},
            KEPT,
            [
                "a.md: 101 words, budget 100: move the history to docs/notebook.md as one row, or "
                "raise this file's number in tools/check/words.toml and lower another's"
            ],
        ),
        (
            {"a.md": 1, "b.md": 1, "c.md": 7},
            KEPT,
            [
                "c.md: 7 words, no budget: give this file a number in tools/check/words.toml and "
                "lower another's"
            ],
        ),
        (
            {"a.md": 1},
            KEPT,
            ["tools/check/words.toml: b.md is not a tracked document: remove its number"],
        ),
        (
            {"a.md": 1, "b.md": 1},
            {"a.md": 100, "b.md": 251},
            ["tools/check/words.toml: the numbers sum to 351, limit 350: lower some of them"],
        ),
    ],
)
def test_complaints(counts, files, found):
    assert list(complaints(counts, Budget(350, [], files))) == found


@pytest.fixture
def checkout(tmp_path):
    """A repository of two documents, one page that a program writes, and one untracked file."""
    numbers = tmp_path / words.NUMBERS
    numbers.parent.mkdir(parents=True)
    numbers.write_text('limit = 300\ngenerated = [\n  "made.md",\n]\n\n[files]\n"a.md" = 50\n')
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name, count in {"a.md": 51, "b/c d.md": 100, "made.md": 9, "untracked.md": 9}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a word\n" * (count // 2) + "last" * (count % 2))
    subprocess.run(["git", "-C", tmp_path, "add", "a.md", "b", "made.md"], check=True)
    return tmp_path


def test_tracked_documents_are_counted(checkout, capsys):
    assert words.main(["--root", str(checkout)]) == 1
    long, unbudgeted, total = capsys.readouterr().out.splitlines()
    assert long.startswith("a.md: 51 words, budget 50")
    assert unbudgeted.startswith("b/c d.md: 100 words, no budget")
    assert total == "151 words in 2 documents"


def test_write_rounds_up_to_the_next_fifty_and_keeps_the_rest(checkout):
    assert words.main(["--root", str(checkout), "--write"]) == 0
    assert words.read_budget(checkout) == Budget(300, ["made.md"], {"a.md": 100, "b/c d.md": 100})
    assert words.main(["--root", str(checkout)]) == 0


def test_write_over_the_limit_is_told(checkout):
    (checkout / "a.md").write_text("word " * 201)
    assert words.main(["--root", str(checkout), "--write"]) == 1
