"""What is counted in JSON before it is parsed is what a parser finds in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.server.http import json_bodies
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.json_bodies import check_arguments, check_texts, structure
from glm_engine.server.server_settings import Settings

TEXTS = st.text(alphabet='\\"[]{}:,aé€\n😀', max_size=12)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def signs_of(value):
    """Return the signs that part a value, by a walk through it."""
    if isinstance(value, list):
        return "[" + ",".join(map(signs_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(":" + signs_of(one) for one in value.values()) + "}"
    return ""


@pytest.mark.parametrize("length", [1, 2, 3, 7, 65_536])
@given(value=VALUES, is_ascii=st.booleans())
def test_only_what_stands_outside_strings_is_counted(length, value, is_ascii) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, separators=(",", ":"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "SLICE_LENGTH", length)
        for one in (text, text.encode()):
            found = b"".join(structure(one)).decode()
            assert found.replace('"', "") == signs_of(value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[" * 64 + "]" * 64, None),
        ("[" * 65 + "]" * 65, "json_too_deep"),
        ("[" * 65, "json_too_deep"),
        ("[{}," * 32 + "{}" + "]" * 32, None),
        ("[" + "[]," * 65_534 + "[]]", None),
        ("[" + "[]," * 65_535 + "[]]", "json_too_complex"),
        ("[" + "0," * 2_097_152 + "0]", None),
        ("[" + "0," * 2_097_153 + "0]", "json_too_complex"),
        ("[" + '"",' * 1_048_576 + "0]", None),
        ("[" + '"",' * 1_049_000 + "0]", "json_too_complex"),
        ('["' + "[{:," * 500_000 + '"]', None),
        ('["' + '\\"[' * 500_000 + '"]', None),
        ('["' + "\\\\" * 500_001 + '"]', None),
        ("", None),
    ],
)
def test_bounds(text, code) -> None:
    try:
        check_arguments([text])
        found = None
    except ApiError as error:
        found = error.code
    assert found == code


def test_texts_count_together() -> None:
    half = "[" + "[]," * (Settings.max_json_members // 2) + "[]]"
    check_texts([half])
    with pytest.raises(ApiError) as caught:
        check_texts([half, half])
    assert caught.value.code == "json_too_complex"
