"""Single rules of the grammar, each with a text that shows it."""

import json
import time

import pytest

from glm_engine.text.dialogue import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    DialogueParser,
    Opening,
    Reasoning,
    opening_of,
)
from tests.python.text.dialogue.folding import folded, parsed, tool

CALL = "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|user|>q<|assistant|><think>", Opening.THOUGHT),
        ("<|user|>q<|assistant|></think>", Opening.ANSWER),
        ("<|user|>q<|assistant|>\n<think></think>", Opening.ANSWER),
        ("<|user|>what is <think>?<|assistant|>", Opening.EITHER),
        ("<|user|>q<|assistant|>\n", Opening.EITHER),
        ("<|user|>q<|assistant|>Well", Opening.ANSWER),
        ("<|assistant|><think>x</think>y<|user|>q<|assistant|><think>\nSo far", Opening.THOUGHT),
        ("<|assistant|>y<|user|>q", Opening.ANSWER),
        ("", Opening.ANSWER),
    ],
)
def test_prompt_tells_how_the_turn_begins(prompt, expected):
    assert opening_of(prompt) is expected


@pytest.mark.parametrize(
    ("text", "in_reasoning", "expected"),
    [
        ("a\n</think>\n\nb", True, [["reasoning", "a"], ["content", "b"]]),
        ("\n<think>a</think>\nb", False, [["reasoning", "a"], ["content", "b"]]),
        ("<think>\na</think>b", True, [["reasoning", "a"], ["content", "b"]]),
        ("</think>b", True, [["content", "b"]]),
        ("\n</think>\nb", False, [["content", "b"]]),
        ("a, never closed \n", True, [["reasoning", "a, never closed \n"]]),
        ("b </think> c <think> d\n", False, [["content", "b </think> c <think> d\n"]]),
        ("a</think>b</think>", True, [["reasoning", "a"], ["content", "b</think>"]]),
        ("a </thin", True, [["reasoning", "a </thin"]]),
        ("", True, []),
        (" \n", False, []),
    ],
)
def test_thoughts(text, in_reasoning, expected):
    assert folded(parsed(text, in_reasoning)) == expected


def test_call_inside_a_thought_is_thought():
    parts = folded(parsed(f"I could {CALL} here.</think>{CALL}", in_reasoning=True))
    assert parts == [["reasoning", f"I could {CALL} here."], ["call", "f", '{"a": 1}', True]]


WHOLE = ["call", "f", '{"a": 1}', True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, [WHOLE]),
        (f"So: \n{CALL}\n\n{CALL} \n", [["reasoning", "So:"], WHOLE, WHOLE]),
        (f"{CALL} or {CALL}", [["reasoning", f"{CALL} or {CALL}"]]),
        (f"{CALL}. {CALL}\n{CALL} \n", [["reasoning", f"{CALL}. {CALL}\n{CALL} \n"]]),
        (f"{CALL}. {CALL}</think>b", [["reasoning", f"{CALL}. {CALL}"], ["content", "b"]]),
        (f"a<tool_call>b {CALL}", [["reasoning", "a<tool_call>b"], WHOLE]),
        (f"{CALL}<tool_call>b {CALL}", [["reasoning", f"{CALL}<tool_call>b {CALL}"]]),
        (f"{CALL}.", [["reasoning", f"{CALL}."]]),
        (f"{CALL}<tool", [["reasoning", f"{CALL}<tool"]]),
        (f"{CALL}{CALL[:-3]}", [WHOLE, WHOLE]),
        (f"{CALL}{CALL[:-16]}", [["reasoning", f"{CALL}{CALL[:-16]}"]]),
        (f"{CALL[:-3]}</think>b", [["reasoning", CALL[:-3]], ["content", "b"]]),
        (f"{CALL} \n</think>b", [["reasoning", CALL], ["content", "b"]]),
        (
            CALL.replace("1", "x</think>y"),
            [
                ["reasoning", "<tool_call>f<arg_key>a</arg_key><arg_value>x"],
                ["content", "y</arg_value></tool_call>"],
            ],
        ),
        (CALL.replace("<arg_value>", "</think>"), None),
    ],
)
def test_calls_that_end_a_thought_which_nothing_closed(text, expected):
    parts = folded(parsed([text], in_reasoning=True))
    assert parts == folded(parsed(text, in_reasoning=True))
    if expected is None:
        assert [kind for kind, *_ in parts] == ["reasoning", "content"]
    else:
        assert parts == expected
    cut = folded(parsed([text], in_reasoning=True, is_cut=True))
    assert "call" not in [kind for kind, *_ in cut]


def test_without_tools_a_call_that_ends_a_thought_is_thought():
    parts = folded(parsed([CALL], in_reasoning=True, parses_tool_calls=False))
    assert parts == [["reasoning", CALL]]


def test_a_call_in_a_thought_is_held_back_until_something_else_comes():
    parser = DialogueParser(True)
    assert parser.push(f"a {CALL}") == [Reasoning("a")]
    assert parser.push(" \n<tool_") == []
    assert parser.push("x") == [Reasoning(f" {CALL} \n<tool_x")]
    assert parser.push(CALL) == [Reasoning(CALL)]
    parser = DialogueParser(True)
    assert parser.push(CALL) == []
    assert parser.push("</think>") == [Reasoning(CALL)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<tool_call>f</tool_call>", [["call", "f", "{}", True]]),
        ("<tool_call>f\n</tool_call>", [["call", "f", "{}", True]]),
        ("<tool_call>\nf \n</tool_call> ", [["call", "f", "{}", True]]),
        (CALL * 2, [["call", "f", '{"a": 1}', True]] * 2),
        (
            f"Now:\n\n{CALL}\n and \n{CALL}\ndone\n",
            [
                ["content", "Now:"],
                ["call", "f", '{"a": 1}', True],
                ["content", "\n\n\n and"],
                ["call", "f", '{"a": 1}', True],
                ["content", " \n\ndone\n"],
            ],
        ),
    ],
)
def test_calls(text, expected):
    assert folded(parsed(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the tag <tool_call> opens a call",
        "<tool_call></tool_call>",
        "<tool_call>two words</tool_call>",
        "<tool_call>f<arg_value>",
        "<tool_call>f",
        "<tool_call>f <arg_",
        "<tool_call>" + "n" * 257 + "</tool_call>",
        "</tool_call> <arg_key>a</arg_key>",
        "a < b </ c <tool",
    ],
)
def test_what_is_no_call_is_content(text):
    assert folded(parsed(text)) == [["content", text]]


def test_a_call_after_what_only_looked_like_one():
    parts = folded(parsed(f"<tool_call>x \n{CALL}"))
    assert parts == [["content", "<tool_call>x"], ["call", "f", '{"a": 1}', True]]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"I will check.\n{CALL}\nAlso this.\n{CALL}\n", "I will check.\n\nAlso this."),
        (f"One{CALL} two", "One two"),
        (f"One {CALL}two", "One two"),
        (f"One\n{CALL}\n{CALL}\t{CALL}two \n", "One\n\n\ttwo \n"),
        (f"One{CALL}two", "Onetwo"),
        (f"</think>\n{CALL}\n{CALL} two", "two"),
        (f"One \n{CALL} \n", "One"),
        (f"One{CALL}\\n{CALL}\\n", "One"),
        (f"One{CALL}\\nabla", "One\\nabla"),
        (f"{CALL} \\n{CALL}\\nabla", "\\n\\nabla"),
        (f" \n{CALL} \n", ""),
        (f"One \n<tool_call>x \n{CALL} \ntwo", "One \n<tool_call>x \n \ntwo"),
    ],
)
def test_white_space_between_texts_around_calls_stays(text, content):
    for pieces in ([text], text):
        deltas = parsed(pieces)
        assert "".join(one.text for one in deltas if isinstance(one, Content)) == content
        for one in deltas:
            if isinstance(one, Content):
                assert text[: one.end].endswith(one.text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL.replace("</arg_key>", "</arg_key>\\n"), ["f", {"a": "1"}]),
        (CALL.replace("</arg_value>", "</arg_value>\\n"), ["f", {"a": "1"}]),
        (CALL.replace("<tool_call>", "<tool_call> \\n\n\\n"), ["f", {"a": "1"}]),
        (CALL.replace("f<arg_key>", "f\\n<arg_key>"), ["f", {"a": "1"}]),
        (CALL.replace("f<arg_key>", "f\\n \\n\\n\n<arg_key>"), ["f", {"a": "1"}]),
        ("<tool_call>f\\n</tool_call>", ["f", {}]),
        ("<tool_call>\\nf</tool_call>", ["f", {}]),
        ("<tool_call>a\\nf</tool_call>", ["a\\nf", {}]),
        (
            "<tool_call>f\\n<arg_key>a</arg_key>\\n<arg_value>\\nx\\n</arg_value>\\n"
            "<arg_key>b</arg_key> \\n<arg_value>2</arg_value>\\n</tool_call>",
            ["f", {"a": "\\nx\\n", "b": 2}],
        ),
    ],
)
def test_a_newline_that_is_spelled_out_beside_tags_is_white_space(text, expected):
    tools = [tool("f", a="string", b="integer")]
    for pieces in ([text], text):
        for in_reasoning, turn in ((False, pieces), (True, [*pieces, "\\n"])):
            [call, *rest] = folded(parsed(turn, in_reasoning, tools=tools))
            assert [call[1], json.loads(call[2])] == expected
            assert call[3]
            assert rest == []


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\\n</tool_call>",
        "<tool_call>f\\n",
        "<tool_call>f \\x</tool_call>",
        "<tool_call>f\n\\</tool_call>",
        "<tool_call>" + "n" * 255 + "\\n</tool_call>",
    ],
)
def test_what_is_no_call_keeps_its_backslashes(text):
    for pieces in ([text], text):
        assert folded(parsed(pieces)) == [["content", text]]


def test_a_backslash_after_a_value_is_text_unless_an_n_makes_it_a_newline():
    begin = "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value>"
    tools = [tool("f", a="string")]
    parser = DialogueParser(False, tools)
    parser.push(begin)
    assert parser.push(" \\") == []
    assert parser.push("t") == []
    assert parser.finish() == [Content("\\t")]
    parser = DialogueParser(False, tools)
    parser.push(f"{begin} \\")
    assert parser.push("n") == []
    assert parser.push("</tool_call>") == [CallArguments(0, "}"), CallEnd(0)]


@pytest.mark.parametrize(
    "value",
    [
        *("", " \n", "a < b", "</", "</arg_", "</arg_values>", "x</arg_valu y", "<arg key>"),
        *("</think>", "<think>", '"quoted"', "\\", "\u2028\x01é😀", " x \n", "x \\n"),
        *("123", "true", "null", "{}"),
    ],
)
@pytest.mark.parametrize(
    "follower", ["</tool_call>", "\n<arg_key>b</arg_key><arg_value>2</arg_value>"]
)
def test_string_values_come_back_exactly(value, follower):
    end = follower if follower == "</tool_call>" else f"{follower}</tool_call>"
    text = f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value>{end}"
    [call] = folded(parsed(text, tools=[tool("f", a="string", b="integer")]))
    assert json.loads(call[2])["a"] == value
    assert call[3]


@pytest.mark.parametrize("key", ["", "a b", "é", '"', "<x>", "</arg_", "<arg_val>", "a\nb"])
def test_keys_come_back_exactly(key):
    text = f"<tool_call>f<arg_key>{key}</arg_key>\n<arg_value>1</arg_value></tool_call>"
    [call] = folded(parsed(text))
    assert json.loads(call[2]) == {key: 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL.replace("<arg_value>", ""), {"a": "1"}),
        (CALL.replace("<arg_value>", " \n"), {"a": "1"}),
        (CALL.replace("<arg_value>1", "< arg_value>1"), {"a": "< arg_value>1"}),
        (CALL.replace("<arg_value>1", ""), {"a": ""}),
        (
            "<tool_call>f<arg_key>b</arg_key>[1]</arg_value>\n<arg_key>a</arg_key> x y</arg_value>"
            "<arg_key>c</arg_key><arg_value>z</arg_value></tool_call>",
            {"b": [1], "a": "x y", "c": "z"},
        ),
    ],
)
def test_a_value_may_lack_its_first_tag(text, expected):
    tools = [tool("f", a="string", b="array")]
    for pieces in ([text], text):
        [call] = folded(parsed(pieces, tools=tools))
        assert json.loads(call[2]) == expected
        assert call[3]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("<tool_call>f<arg_key>", '{"'),
        ("<tool_call>f<arg_key>ke</arg_key>\n<arg_val", '{"ke'),
        ("<tool_call>f<arg_key>s</arg_key>x", '{"s": "x'),
        ("<tool_call>f<arg_key>ke", '{"ke'),
        ("<tool_call>f<arg_key>ke</arg_key>\n", '{"ke'),
        ("<tool_call>f<arg_key>s</arg_key><arg_value>a\nb", '{"s": "a\\nb'),
        ("<tool_call>f<arg_key>s</arg_key><arg_value>a</arg", '{"s": "a</arg'),
        ("<tool_call>f<arg_key>n</arg_key><arg_value>12", '{"n": "12'),
        ("<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>m", '{"n": 1, "m'),
    ],
)
def test_unfinished_call_stays_open(text, arguments):
    deltas = parsed(f"Yes. {text}", tools=[tool("f", s="string")])
    assert folded(deltas) == [["content", "Yes."], ["call", "f", arguments, False]]
    assert not any(isinstance(delta, CallEnd) for delta in deltas)


def test_string_values_stream_and_others_come_whole():
    parser = DialogueParser(False, [tool("f", s="string", n="array")])
    assert parser.push("<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>") == [
        CallBegin(0, "f"),
        CallArguments(0, '{"s": "'),
    ]
    assert parser.push('a"\n😀') == [CallArguments(0, 'a\\"\\n😀')]
    assert parser.push("</arg_value>\n<arg_key>n</arg_key>\n<arg_value>") == [
        CallArguments(0, '", "n": ')
    ]
    assert parser.push("[1,") == []
    assert parser.push(" 2]\n</arg_value>\n</tool_call>") == [
        CallArguments(0, "[1, 2]}"),
        CallEnd(0),
    ]
    assert parser.finish() == []


def test_only_what_may_be_a_tag_is_held_back():
    parser = DialogueParser(True)
    assert parser.push("a<") == [Reasoning("a")]
    assert parser.push("b") == [Reasoning("<b")]
    assert parser.push("<tool_call>") == []
    assert parser.push("a b") == [Reasoning("<tool_call>a b")]
    assert parser.push("</think>x") == [Content("x")]
    assert parser.push("</tool") == [Content("</tool")]
    assert parser.push("y \n") == [Content("y")]
    assert parser.push("<tool_c") == []
    assert parser.push("ar>") == [Content(" \n<tool_car>")]


def test_without_calls_their_tags_are_content():
    parser = DialogueParser(False, parses_tool_calls=False)
    assert parser.push(f"x {CALL} ") == [Content(f"x {CALL} ")]
    assert parser.finish() == []


def test_continued_turn_keeps_its_first_spaces():
    assert parsed([" Paris"], continues_turn=True) == [Content(" Paris")]
    assert parsed(["\n", "so</think>x"], True, continues_turn=True) == [
        Reasoning("\nso"),
        Content("x"),
    ]


def test_nothing_comes_after_the_end():
    parser = DialogueParser(False)
    assert parser.push("") == []
    assert parser.finish() == []
    assert parser.finish() == []
    with pytest.raises(ValueError, match="push after finish"):
        parser.push("x")


MEGABYTE = 1 << 20
VALUE_BEGIN = "<tool_call>f<arg_key>a</arg_key><arg_value>"


@pytest.mark.parametrize("size", [50, MEGABYTE])
@pytest.mark.parametrize(
    ("opening", "unit"),
    [
        ("", "some words < and </ <tool_ca "),
        ("", "<tool_call>a b "),
        ("<think>", "</thin <tool_call>"),
        ("<think>", CALL),
        ("<think>", f"{CALL}."),
        (f"<think>{VALUE_BEGIN}", "x<y </think "),
        ("x", " \n"),
        ("<tool_call>", "n"),
        ("<tool_call>", "\\n"),
        ("<tool_call>f \\n", " \\n"),
        ("x", f"\n{CALL} \\n"),
        (VALUE_BEGIN, "x</arg_value>\\n"),
        (VALUE_BEGIN, "x<y </arg_value>\n<arg_ke> "),
        (f"{VALUE_BEGIN}[", "1, "),
        ("<tool_call>f<arg_key>", "</arg_key> k"),
        ("", CALL),
    ],
)
def test_time_is_linear(opening, unit, size):
    text = opening + unit * (MEGABYTE // len(unit))
    begin = time.process_time()
    parsed(text[at : at + size] for at in range(0, len(text), size))
    assert time.process_time() - begin < 10
