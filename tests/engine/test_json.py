"""The strict JSON reader of the engine against Python's, on generated and damaged documents."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glm_engine.core.errors import Status
from tests.engine import loader

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=12),
    max_leaves=24,
)
MAX_DEPTH = 64
MAX_VALUES = 2**22
LONGEST_NUMBER = 255
REFUSED = [
    "01",
    "-",
    "+1",
    "1.",
    ".5",
    "1e",
    "1e+",
    "--1",
    "0x1",
    "1_0",
    "NaN",
    "Infinity",
    "nul",
    "truee",
    "[1,]",
    '{"a":1,}',
    "{,}",
    "[,1]",
    '{"a"}',
    "{a:1}",
    "{'a':1}",
    "[1 2]",
    '"\t"',
    '"\\x41"',
    '"\\u12"',
    '"\\u12G4"',
    '"\\ud800"',
    '"\\ud800\\u0041"',
    '"\\udc00"',
    '"',
    '"\\',
    "[",
    "{",
    '{"a":',
    "//",
    "[1]//",
    "[1][2]",
    "\ufeff1",
]


def refuse_constant(name: str) -> None:
    raise ValueError(name)


def refuse_duplicates(pairs: list[tuple[str, object]]) -> dict:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("duplicate name")
    return document


def has_lone_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    if isinstance(value, list):
        return any(has_lone_surrogate(item) for item in value)
    if isinstance(value, dict):
        return any(has_lone_surrogate(item) for pair in value.items() for item in pair)
    return False


def is_strict(data: bytes) -> bool:
    """Whether Python, told to be strict, reads the document."""
    try:
        text = data.decode("utf-8")
        if text.startswith("\ufeff"):
            return False
        value = json.loads(
            text,
            parse_constant=refuse_constant,
            parse_int=str,
            object_pairs_hook=refuse_duplicates,
        )
    except (ValueError, RecursionError):
        return False
    return not has_lone_surrogate(value)


def accepts(data: bytes) -> bool:
    status, message = loader.parse("loader_parse_json", data)
    assert status in {Status.GLM_OK, Status.GLM_INVALID_CHECKPOINT}
    assert (status == Status.GLM_OK) == (message == "")
    return status == Status.GLM_OK


@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=300, deadline=None)
def test_what_python_writes_is_read(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert accepts(text.encode("utf-8", "surrogatepass")) is not has_lone_surrogate(value)


@given(VALUES, st.data())
@settings(max_examples=500, deadline=None)
def test_damaged_documents_are_judged_as_python_does(value, data):
    document = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(document)))
        document[position : position + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from(
                [b"", b'"', b"\\", b",", b"}", b"]", b"{", b"0", b"-", b"\x80", b"\x1f", b" "]
            )
        )
    assert accepts(bytes(document)) is is_strict(bytes(document))


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    assert not accepts(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    "data",
    [
        b'"\x80"',
        b'"\xc0\xaf"',
        b'"\xc1\xbf"',
        b'"\xe0\x80\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf0\x80\x80\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xf5\x80\x80\x80"',
        b'"\xe2\x82"',
        b'"\xff"',
    ],
)
def test_bytes_that_are_not_utf8(data):
    assert not accepts(data)


@pytest.mark.parametrize(
    "text",
    ["0", "-0", "0.0", "1e400", "1E-400", "9223372036854775808", " [ ] ", "\t{}\r\n", '""', "null"],
)
def test_accepted(text):
    assert accepts(text.encode())


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_depth_limit(bracket):
    opening = "[" if bracket == "[]" else '{"a":'
    closing = bracket[1]

    def nested(depth: int) -> bytes:
        return (opening * (depth - 1) + bracket + closing * (depth - 1)).encode()

    assert accepts(nested(MAX_DEPTH))
    assert not accepts(nested(MAX_DEPTH + 1))
    status, message = loader.parse("loader_parse_json", nested(10_000))
    assert status == Status.GLM_INVALID_CHECKPOINT
    assert "nested deeper than 64 levels" in message


def test_long_numbers():
    assert accepts(b"9" * LONGEST_NUMBER)
    status, message = loader.parse("loader_parse_json", b"9" * (LONGEST_NUMBER + 1))
    assert status == Status.GLM_INVALID_CHECKPOINT
    assert "255 characters" in message


def test_number_of_values():
    def listed(count: int) -> bytes:
        return b"[" + b",".join([b"0"] * (count - 1)) + b"]"

    assert accepts(listed(MAX_VALUES))
    status, message = loader.parse("loader_parse_json", listed(MAX_VALUES + 1))
    assert status == Status.GLM_INVALID_CHECKPOINT
    assert f"more than {MAX_VALUES} values" in message


@pytest.mark.parametrize("count", [2, 8, 9, 10, 1000])
def test_duplicates_in_small_and_large_objects(count):
    names = [f"n{number}" for number in range(count)]
    assert accepts(json.dumps(dict.fromkeys(names, 1)).encode())
    twice = ",".join(f'"{name}":1' for name in [*names, names[0]])
    status, message = loader.parse("loader_parse_json", f"{{{twice}}}".encode())
    assert status == Status.GLM_INVALID_CHECKPOINT
    assert '"n0" appears twice' in message


def test_escaped_name_equals_plain_name():
    assert not accepts(b'{"a":1,"\\u0061":2}')


def test_message_tells_the_position():
    assert "at byte 6" in loader.parse("loader_parse_json", b'{"a": x}')[1]
