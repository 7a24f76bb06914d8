"""Where the parser lets an answer begin, the finder does, whatever the cuts."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glm_engine.text.dialogue import AnswerFinder, Content, DialogueParser
from glm_engine.text.stop_matcher import StopMatcher

PIECES = ["<think>", "</think>", "<", "</", "think>", " ", "\n", "a", "stop", "</thin"]
texts = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
cuts = st.lists(st.integers(0, 60), max_size=9)
layouts = st.fixed_dictionaries(
    {name: st.booleans() for name in ("in_reasoning", "continues_turn", "keeps_spaces")}
)


def cut(text, places):
    edges = sorted({0, len(text), *(place for place in places if place < len(text))})
    return [text[begin:end] for begin, end in pairwise(edges)]


def content_of(text, layout):
    parser = DialogueParser(parses_tool_calls=False, **layout)
    deltas = [*parser.push(text), *parser.finish()]
    return "".join(one.text for one in deltas if type(one) is Content)


def told_apart(pieces, layout):
    finder = AnswerFinder(**layout)
    parts = [*map(finder.push, pieces), finder.finish()]
    return ["".join(texts) for texts in zip(*parts, strict=True)], parts


@given(texts, cuts, layouts)
@settings(deadline=None)
def test_the_answer_is_the_parsers(text, places, layout):
    (thought, space, answer), parts = told_apart(cut(text, places), layout)
    assert thought + space + answer == text
    assert "".join("".join(part) for part in parts) == text
    assert not space.strip()
    assert answer == content_of(text, layout)


@given(texts, cuts, layouts)
@settings(deadline=None)
def test_a_stop_text_ends_the_answer_alone(text, places, layout):
    answer = content_of(text, layout)
    matcher = StopMatcher(["stop"], finder=AnswerFinder(**layout))
    shown = "".join(map(matcher.push, cut(text, places))) + matcher.finish()
    assert matcher.stopped == ("stop" in answer)
    before = text[: len(text) - len(answer)]
    assert shown == before + answer.partition("stop")[0]


@pytest.mark.parametrize("stop", ["\nstop", " \nst", "s"])
def test_a_stop_text_may_begin_in_the_layout(stop):
    matcher = StopMatcher([stop], finder=AnswerFinder(in_reasoning=True))
    shown = matcher.push("stop</think> \nstop") + matcher.finish()
    assert shown + stop == "stop</think> \nstop"[: len(shown + stop)]
    assert matcher.found == stop
