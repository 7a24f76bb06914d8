"""When lines are a message, and which one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.terminal.reading import is_whole, message_of

MESSAGES = [
    ("a", "a"),
    ("a\\\nb", "a\nb"),
    ("a\\\n\\\nb\\c", "a\n\nb\\c"),
    ('"""a\nb"""', "a\nb"),
    ('  """\na\n\nb\n"""  ', "a\n\nb"),
    ('"""a \\\nb"""', "a \\\nb"),
    ('say """a"""', 'say """a"""'),
    ('""""""', ""),
    ("/set top_p 1", "/set top_p 1"),
]
OPEN = ["\\", "a\\", "a\\\nb\\", '"""', ' """a', '"""a""', '"""a\n']


@pytest.mark.parametrize(("text", "message"), MESSAGES)
def test_whole_messages(text, message):
    assert is_whole(text)
    assert message_of(text) == message


@pytest.mark.parametrize("text", OPEN)
def test_open_messages(text):
    assert not is_whole(text)


@given(st.lists(st.text(st.characters(exclude_characters='"\\\n')), min_size=1))
def test_every_text_can_be_written_in_both_ways(lines):
    text = "\n".join(lines)
    typed = "\\\n".join(lines)
    assert is_whole(typed)
    assert message_of(typed) == text
    quoted = f'"""\n{text}\n"""'
    assert is_whole(quoted)
    assert message_of(quoted) == text.strip("\n")
