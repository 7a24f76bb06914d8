"""Any text in any split: the same parts, and those of the oracle over the whole text."""

import json
from itertools import pairwise

import pydantic_core
from hypothesis import given, settings
from hypothesis import strategies as st

from glm_engine.text.dialogue import Content, Reasoning, tags
from tests.python.text.dialogue import whole_text
from tests.python.text.dialogue.folding import calls, folded, parsed, tool

FRAGMENTS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>"),
    *(
        "</arg_value>\n</tool_call>",
        "</arg_value>\n</tool",
        "</arg_value>\n<arg_key>b</arg_key><arg_value>",
        "f",
        "a b",
    ),
    *("<", "</", "<arg_", "</tool", ">", "\n", "  ", "12", "-0.5e3", "true", "null", "[1, {", "}]"),
    *("\\n", "\\", "n", "True", "None]", "{'a': 1}", '{\\"a\\": 1}', '"[1, 2]"'),
    *('"', '"x"', "\\u00e9", "é", "😀", "\u00a0", "\u2028", "\x00"),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=24).map("".join)
TYPED = [
    [tool("f", a="string", b="string")],
    [tool("f", a="string", b={"type": ["object", "array", "integer"]})],
    [
        tool(
            "f",
            a={"type": ["boolean", "null"]},
            b={"anyOf": [{"type": "null"}, {"type": "string"}]},
        )
    ],
]


def pieces(text, cuts):
    """Cut text at places given as any whole numbers."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[begin:end] for begin, end in pairwise(places)]


CUTS = st.lists(st.integers(0, 2**20), max_size=12)
OPTIONS = st.fixed_dictionaries(
    {
        "in_reasoning": st.booleans(),
        "is_cut": st.booleans(),
        "parses_tool_calls": st.booleans(),
        "calls_come_first": st.booleans(),
        "continues_turn": st.booleans(),
        "keeps_spaces": st.booleans(),
        "tools": st.sampled_from(TYPED),
    }
)


@settings(max_examples=400, deadline=None)
@given(TEXTS, CUTS, OPTIONS)
def test_any_split_gives_the_same(text, cuts, options):
    whole = folded(parsed([text], **options))
    assert folded(parsed(pieces(text, cuts), **options)) == whole
    assert folded(parsed(text, **options)) == whole


@settings(max_examples=400, deadline=None)
@given(TEXTS, CUTS, st.booleans(), st.booleans(), st.booleans())
def test_every_piece_stands_where_it_says(text, cuts, in_reasoning, calls_come_first, is_cut):
    options = {"is_cut": is_cut, "calls_come_first": calls_come_first, "tools": TYPED[0]}
    last = 0
    for delta in parsed(pieces(text, cuts), in_reasoning, **options):
        if isinstance(delta, Reasoning | Content):
            begin = delta.end - len(delta.text)
            assert last <= begin
            assert text[begin : delta.end] == delta.text
            last = delta.end


@settings(max_examples=600, deadline=None)
@given(TEXTS, st.booleans(), st.booleans(), st.booleans())
def test_same_as_the_oracle(text, in_reasoning, is_string, is_cut):
    schema = {"type": "string"} if is_string else True
    tools = [{"function": {"name": "f", "parameters": {"additionalProperties": schema}}}]
    parts = folded(parsed(text, in_reasoning, is_cut, tools=tools if is_string else ()))
    names = {part[1] for part in calls(parts)}
    if is_string and names - {"f"}:
        return
    try:
        expected = whole_text.parse(text, in_reasoning, is_string, is_cut)
    except whole_text.DamagedError as damage:
        check_before(parts, *damage.args)
    else:
        assert [read(part) for part in parts] == expected


def check_before(parts, known=()):
    """Check what stands before a damaged call; of the last text more may come."""
    *known, last = known or [["reasoning", ""]]
    found = [read(part) for part in parts[: len(known) + 1]]
    assert found[:-1] == known or not found
    assert not last[1] or found[-1][0] == last[0]


def read(part):
    """Read the arguments of a call as a client would, of an unfinished one as far as they go."""
    if part[0] != "call":
        return part
    kind, name, text, is_whole = part
    if is_whole:
        return [kind, name, json.loads(text), True]
    return [kind, name, partial_json(text), False]


def partial_json(text):
    try:
        json.loads(text)
    except ValueError:
        return pydantic_core.from_json(text or "{", allow_partial="trailing-strings")
    raise AssertionError(f"{text!r} is valid JSON although its call has no end")


@settings(deadline=None)
@given(TEXTS, st.booleans())
def test_without_calls_only_spaces_and_thinking_tags_go(text, in_reasoning):
    parts = folded(parsed(text, in_reasoning, parses_tool_calls=False))
    shown = "".join(part[1] for part in parts)
    assert without_layout(shown, ()) == without_layout(
        text, [part for part in ("<think>", "</think>") if text.count(part) > shown.count(part)]
    )


def without_layout(text, gone):
    """Return text without white space, and without the first of each tag that is gone."""
    for tag in gone:
        text = text.replace(tag, "", 1)
    return "".join(text.split())


@settings(deadline=None)
@given(st.text(), st.booleans())
def test_a_continued_turn_loses_nothing(text, in_reasoning):
    options = {"parses_tool_calls": False, "continues_turn": True}
    if in_reasoning and "</think>" in text:
        return
    parts = folded(parsed(text, in_reasoning, **options))
    assert "".join(part[1] for part in parts) == text


@settings(deadline=None)
@given(st.text(alphabet=" \n<a/think>", max_size=12), CUTS, st.sampled_from(["", "<think>so"]))
def test_an_answer_that_keeps_its_spaces_is_all_there(text, cuts, thought):
    if not thought and text.lstrip(tags.SPACES).startswith((tags.THINK, tags.THINK_END)):
        return
    turn = f"{thought} {tags.THINK_END}{text}" if thought else text
    parts = folded(parsed(pieces(turn, cuts), parses_tool_calls=False, keeps_spaces=True))
    assert "".join(part[1] for part in parts[bool(thought) :]) == text
