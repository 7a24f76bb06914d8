"""Terra's folders use only what the page of the architecture allows, and in no circle."""

import re
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.docs.documents import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| `terra/(\w+)` \| ([^;|]+)", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")
MODULE = re.compile(r'"([\w%]*\.[\w.%]*)"')
REQUIRE = re.compile(r'\brequire\("terra\.(\w+)\.\w+"\)')


def rooms_used(folder):
    """Each folder with a source in it, and the other folders that its sources require."""
    used = {}
    for path in folder.glob("*/*.t"):
        required = set(REQUIRE.findall(path.read_text()))
        used.setdefault(path.parent.name, set()).update(required - {path.parent.name})
    return used


def allowed(words, rooms):
    """The folders that a cell of the page names, or all but those after `every room`."""
    named = set(NAME.findall(words)) & set(rooms)
    return set(rooms) - named if words.startswith("every room") else named


USED = rooms_used(ROOT / "terra")
ROWS = dict(ROW.findall(PAGE))


def test_the_page_has_a_row_for_each_folder():
    assert sorted(ROWS) == sorted(USED)


@pytest.mark.parametrize("room", sorted(USED))
def test_a_folder_uses_what_its_row_allows(room):
    assert USED[room] <= allowed(ROWS[room], USED)


def test_the_table_alone_names_the_modules_of_the_model():
    table = ROOT / "terra" / "model" / "table.t"
    names = {name for name in MODULE.findall(table.read_text()) if not name.startswith("terra.")}
    assert {"model.embed_tokens", "self_attn.q_proj", "mlp.experts.%d."} <= names
    others = set((ROOT / "terra").glob("*/*.t")) - set((ROOT / "terra" / "probes").glob("*.t"))
    for path in others - {table}:
        assert not [name for name in names if f'"{name}' in path.read_text()], path


def test_there_is_no_circle():
    assert list(TopologicalSorter(USED).static_order())[-1] == "api"


def test_a_circle_and_a_use_that_the_page_does_not_allow_are_seen(tmp_path):
    for room, other in (("plan", "ranks"), ("ranks", "plan")):
        (tmp_path / room).mkdir()
        (tmp_path / room / "first.t").write_text(f'local it = require("terra.{other}.first")\n')
    used = rooms_used(tmp_path)
    assert used == {"plan": {"ranks"}, "ranks": {"plan"}}
    assert not used["plan"] <= allowed("`base`, and the config of `checkpoint`", used)
    assert not used["plan"] <= allowed("every room but `ranks`", used)
    with pytest.raises(CycleError):
        TopologicalSorter(used).prepare()
