"""What tools may import."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def imported_modules(text: str) -> Iterator[str]:
    """Dotted name of each module that a source imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""


def imports_tests(text: str) -> bool:
    return any(name.split(".")[0] == "tests" for name in imported_modules(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import tests.native", True),
        ("from tests import shapes", True),
        ("import testsuite", False),
        ("from tools import bench", False),
    ],
)
def test_an_import_of_tests_is_seen(text, expected):
    assert imports_tests(text) == expected


def test_tools_import_nothing_of_tests():
    sources = sorted(TOOLS.rglob("*.py"))
    assert TOOLS / "bindings" / "backend.py" in sources
    assert [p for p in sources if imports_tests(p.read_text(encoding="utf-8"))] == []
