"""Which room of the package may import which, inside functions, too."""

import ast
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "glm_engine"
TOP = {"__init__", "__main__", "version"}
MAY_USE = {
    "version": {"core"},
    "core": {"text", "version"},
    "text": {"core"},
    "server": {"core", "text", "version"},
    "cli": {"core", "bench", "load", "version"},
    "hub": {"core", "cli", "version"},
    "bench": {"core", "hub", "version"},
    "load": {"core", "bench", "server", "version"},
    "terminal": {"core", "text", "cli", "hub", "load", "server"},
    "deploy": {"core", "text", "cli", "bench", "hub", "version"},
    "llm": {"core", "text", "cli", "hub"},
    "batch": {"core"},
    "verify": {"core"},
    "commands": {
        "core",
        "text",
        "cli",
        "batch",
        "bench",
        "hub",
        "load",
        "server",
        "terminal",
        "deploy",
        "verify",
    },
    "__main__": {"core", "cli"},
    "__init__": {"core", "llm", "version"},
}
MOST_NAMES_TWICE = 6
TEXT_IN_CORE = {"runner.py"}


def imported(source):
    """The rooms that a module imports from, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("glm_engine."))


def modules_of(room):
    path = PACKAGE / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def users(room, used):
    """The files of a room that import from another one."""
    found = [path for path in modules_of(room) if used in imported(path.read_text("utf-8"))]
    return {str(path.relative_to(PACKAGE / room)) for path in found}


def test_every_module_stands_in_a_room():
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py"}
    assert found == TOP
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/*.py")}
    assert folders == MAY_USE.keys() - TOP


def test_few_names_of_modules_stand_twice():
    counts = Counter(path.stem for path in PACKAGE.rglob("*.py"))
    twice = {name for name, count in counts.items() if count > 1 and not name.startswith("__")}
    assert len(twice) <= MOST_NAMES_TWICE, sorted(twice)


@pytest.mark.parametrize("room", MAY_USE)
def test_a_room_imports_only_what_it_may_use(room):
    for path in modules_of(room):
        others = set(imported(path.read_text("utf-8"))) - {room}
        assert others <= MAY_USE[room], path


def test_the_engine_knows_text_in_one_place_only():
    assert users("core", "text") == TEXT_IN_CORE


def test_an_import_inside_a_function_counts():
    source = (
        "def late():\n    from glm_engine.cli import options\n    import glm_engine.hub.names\n"
    )
    assert list(imported(source)) == ["cli", "hub"]
