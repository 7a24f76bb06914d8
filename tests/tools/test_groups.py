"""Optional groups: tests ask for them in one way, by the names that the project gives them."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import groups

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted((ROOT / "tests").rglob("*.py"))


def test_one_module_decides_what_is_skipped_without_a_package():
    call = re.compile(r"\bimportorskip\(")
    users = [path for path in SOURCES if call.search(path.read_text(encoding="utf-8"))]
    assert users == [ROOT / "tests" / "groups.py"]


@pytest.mark.parametrize(("name", "group"), groups.MODULES.items())
def test_a_package_is_in_the_group_that_is_named_and_not_in_the_base(name, group):
    pattern = re.compile(rf"{name.replace('_', '-')}==")
    optional = PACKAGES["optional-dependencies"]
    assert any(map(pattern.match, optional[group]))
    base = [*PACKAGES["dependencies"], *optional["build"], *optional["test"], *optional["check"]]
    assert not any(map(pattern.match, base))


@pytest.mark.parametrize("group", sorted({*groups.PROGRAMS.values(), *groups.MODULES.values()}))
def test_a_group_is_one_of_tools_develop(recorded, group):
    assert recorded.run("--with", group, "true").returncode == 0


@pytest.mark.parametrize("name", [*groups.MODULES, *groups.PROGRAMS])
def test_what_is_absent_is_skipped_and_says_which_group_brings_it(name, monkeypatch):
    monkeypatch.setattr(groups, "is_present", lambda _: False)
    mark = groups.needs(name)
    assert mark.args == (True,)
    assert re.fullmatch(rf"{name} is not .*: tools/develop --with \w+", mark.kwargs["reason"])


def test_the_tests_of_a_module_that_uses_groups_carry_the_mark(request):
    assert request.node.get_closest_marker("groups") is not None


def test_what_is_present_is_not_skipped(monkeypatch):
    monkeypatch.setattr(groups, "is_present", lambda _: True)
    assert groups.needs(*groups.MODULES).args == (False,)
