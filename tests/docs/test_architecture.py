"""The page of the architecture names files that exist, and what they define."""

import re
import subprocess

import pytest

from tests.docs.documents import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILE = re.compile(r"`([\w/]+\.(?:cpp|cu|fut|h|hpp|json|md|py|t|toml))`(?: \(`(\w+)`\))?")


def files_called(name):
    """The files of the repository whose path ends with a name."""
    command = ["git", "ls-files", "-z", f":(glob)**/{name}"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / path for path in listed.split("\0") if path]


@pytest.mark.parametrize(("name", "defined"), sorted(set(FILE.findall(PAGE))))
def test_a_named_file_exists(name, defined):
    assert any(re.search(rf"\b{defined}\b", path.read_text()) for path in files_called(name))


def test_a_file_that_does_not_exist_is_seen():
    assert files_called("server/nowhere.py") == []
    assert len(FILE.findall(PAGE)) > 50
