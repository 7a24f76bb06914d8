"""What a pointer into a schema points at."""

import pytest

from glm_engine.text.grammar.schemas import resolved

ROOT = {"anyOf": [{"type": "string"}, {"a/b": 1}], "0": {"~": 2}}


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", ROOT),
        ("/anyOf/0", {"type": "string"}),
        ("/anyOf/1/a~1b", 1),
        ("/0/~0", 2),
        ("/anyOf/2", None),
        ("/anyOf/-1", None),
        ("/anyOf/" + "0" * 5000, None),
        ("/anyOf/" + "9" * 5000, None),
        ("/anyOf/0/type/s", None),
    ],
)
def test_pointers(pointer, found):
    assert resolved(ROOT, pointer) == found
