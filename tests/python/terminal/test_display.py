"""What a terminal gets of an answer, and what a pipe gets."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.terminal.display import Display
from glm_engine.text.dialogue import CallArguments, CallBegin, CallEnd, Content, Reasoning

STYLE = re.compile("\x1b\\[[0-9;]*m")
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
THOUGHT = [Reasoning("Let me "), Reasoning("think."), Content("Pa"), Content("ris.")]
CALLS = [CallBegin(0, "f"), CallArguments(0, '{"a":'), CallArguments(0, "1}"), CallEnd(0)]
SECOND = [CallBegin(1, "g"), CallEnd(1)]


class TerminalText(io.StringIO):
    def isatty(self):
        return True


def shown(deltas, is_terminal, shows_thoughts=True):
    stream = TerminalText() if is_terminal else io.StringIO()
    display = Display(shows_thoughts, stream)
    for delta in deltas:
        display.take([delta])
    display.end()
    return stream.getvalue()


@pytest.fixture(autouse=True)
def coloured(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_thoughts_are_dim_in_a_terminal():
    text = "\x1b[2mLet me \x1b[0m\x1b[2mthink.\x1b[0m\n\nParis.\n"
    assert shown(THOUGHT, is_terminal=True) == text
    assert shown(THOUGHT, is_terminal=True, shows_thoughts=False) == "Paris.\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_thoughts_stand_between_tags_where_nothing_is_dim(monkeypatch, name, value):
    tagged = "<think>\nLet me think.\n</think>\nParis.\n"
    assert shown(THOUGHT, is_terminal=False) == tagged
    monkeypatch.setenv(name, value)
    assert shown(THOUGHT, is_terminal=True) == tagged


@pytest.mark.parametrize("is_terminal", [True, False])
def test_each_call_is_a_line(is_terminal):
    first = '[tool call] f({"a":1})\n'
    text = f"Look.\n{first}[tool call] g()\n"
    assert shown([Content("Look."), *CALLS, *SECOND], is_terminal) == text
    without_ends = [Content("Look."), *CALLS[:-1], *SECOND[:-1]]
    assert shown(without_ends, is_terminal) == text
    assert shown([*CALLS, Content("Done.\n")], is_terminal) == f"{first}Done.\n"


@given(st.lists(st.builds(Content, st.text()) | st.builds(Reasoning, st.text())))
def test_a_terminal_gets_nothing_that_it_obeys(deltas):
    assert not OBEYED.search(STYLE.sub("", shown(deltas, is_terminal=True)))


@given(st.lists(st.text(min_size=1), min_size=1))
def test_a_pipe_gets_the_text_as_it_is(texts):
    text = "".join(texts)
    ended = text if text.endswith("\n") else f"{text}\n"
    assert shown(map(Content, texts), is_terminal=False) == ended


def test_names_and_arguments_of_calls_are_spelt_out_too():
    calls = [CallBegin(0, "\x1b[2J"), CallArguments(0, '"\x9b31m"'), CallEnd(0)]
    assert shown(calls, is_terminal=True) == '[tool call] \\x1b[2J("\\x9b31m")\n'


def test_joined_and_wide_characters_stay():
    text = "a\u00a0b\u3000\u200d\U0001f468\u200d\U0001f469 \u0645\u200c\tz\n"
    assert shown([Content(text)], is_terminal=True) == text
