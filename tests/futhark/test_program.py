"""The shape of the program: entry points in one file, every other file a concept that is used."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "futhark"
FILES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.fut"))}
LONGEST = 450


def imports(name: str) -> set[str]:
    return set(re.findall(r'^import "(\w+)"$', FILES[name], re.MULTILINE))


def reached_from(name: str) -> set[str]:
    found, waiting = set(), {name}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= imports(name) - found
    return found


def test_entry_points_live_in_one_file():
    with_entries = {name for name, text in FILES.items() if re.search(r"^entry ", text, re.M)}
    assert with_entries == {"entries"}
    assert not re.search(r"^(def|type) ", FILES["entries"], re.M)


def test_every_file_is_reached_from_the_entry_points():
    assert reached_from("entries") == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_files_stay_short(name):
    assert len(FILES[name].splitlines()) <= LONGEST


@pytest.mark.parametrize("name", FILES)
def test_the_readme_names_every_file(name):
    readme = (FOLDER / "README.md").read_text()
    assert f"`{name}.fut`" in readme


def test_library_exponentials_are_not_called():
    for name, text in FILES.items():
        assert "f32.exp" not in text, name
