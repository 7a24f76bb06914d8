"""Calls with damaged tags: no tag in a call that runs, and one reading or none."""

import os
import secrets
from random import Random

import pytest

from glm_engine.text.dialogue.tags import CALL_TAGS, bare
from tests.python.text.dialogue.damage import (
    TOOLS,
    check_call,
    cut_somewhere,
    is_open,
    pieces_of,
    random_turn,
)
from tests.python.text.dialogue.folding import calls, folded, parsed, tool

NUM_TURNS = int(os.environ.get("GLM_TEST_DAMAGED_TURNS", "3000"))


def read(pieces, turn, is_cut=False):
    return folded(parsed(pieces, turn.in_reasoning, is_cut, tools=TOOLS))


def check_parts(parts):
    """Check the calls of a turn; returns those that run."""
    made = [(name, check_call(name, text)) for _, name, text, is_whole in calls(parts) if is_whole]
    assert all(is_open(text) for _, _, text, is_whole in calls(parts) if not is_whole)
    states = [is_whole for _, _, _, is_whole in calls(parts)]
    assert False not in states[:-1]
    return made


@pytest.fixture
def random():
    """A source whose seed is told where a test fails; `GLM_TEST_DAMAGE_SEED` sets it."""
    seed = int(os.environ.get("GLM_TEST_DAMAGE_SEED", "0")) or secrets.randbits(32)
    print(f"GLM_TEST_DAMAGE_SEED={seed}")
    return Random(seed)


def test_no_damage_puts_a_tag_into_a_call(random):
    for _ in range(NUM_TURNS):
        turn = random_turn(random)
        is_cut = random.random() < 0.3
        text = cut_somewhere(random, turn.text) if is_cut else turn.text
        parts = read([text], turn, is_cut)
        assert read(pieces_of(random, text), turn, is_cut) == parts, text
        check_parts(parts)


def test_one_damaged_tag_leaves_the_calls_that_were_meant_or_none(random):
    num_meant = num_made = 0
    for _ in range(NUM_TURNS):
        turn = random_turn(random, most_damage=1)
        if turn.is_plain:
            made = check_parts(read([turn.text], turn))
            left = map(without_spaces, turn.calls)
            assert all(call in left for call in map(without_spaces, made)), (turn.text, made)
            num_meant, num_made = num_meant + len(turn.calls), num_made + len(made)
    print(f"{num_made} of {num_meant} calls")
    assert num_made > 0.8 * num_meant


def without_spaces(call):
    """A call without the white space and line ends around its texts, which are layout as well."""
    name, arguments = call
    return name, {key: bare(one) if isinstance(one, str) else one for key, one in arguments.items()}


WHOLE = "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value></tool_call>"
SPELLED = WHOLE.replace("><", ">\n<").replace("search<", "search\n<")
BOTH = WHOLE[:-12] + "<arg_key>limit</arg_key><arg_value>5</arg_value></tool_call>"
MADE = ("search", {"query": "x"})
MADE_BOTH = ("search", {"query": "x", "limit": 5})
NOW = ("now", {})


def doubled(tag):
    return WHOLE.replace(tag, tag * 2)


def without(tag, text=WHOLE):
    return text.replace(tag, "", 1)


def swapped(tag, other, text=WHOLE):
    return text.replace(tag, other, 1)


def last(tag, other, text=BOTH):
    """The text with another tag in the last place where a tag stands."""
    before, _, after = text.rpartition(tag)
    return f"{before}{other}{after}"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        *(
            (WHOLE[:-12], [MADE]),
            (WHOLE[:-1], [MADE]),
            (WHOLE[:-11], [MADE]),
            (SPELLED[:-13], [MADE]),
        ),
        *((WHOLE[:-12] + WHOLE, [MADE] * 2), (WHOLE + WHOLE[:-12], [MADE] * 2)),
        *((swapped("<arg_key>", "<tool_call>"), [MADE]), (without("<arg_key>"), [MADE])),
        *((swapped("<arg_key>", " "), [MADE]), (without("<arg_key>", SPELLED), [MADE])),
        *((without(tag), [MADE]) for tag in CALL_TAGS if tag != "<tool_call>"),
        *((without(tag, SPELLED), [MADE]) for tag in CALL_TAGS if tag != "<tool_call>"),
        *((doubled(tag), [MADE]) for tag in CALL_TAGS),
        *((tag[0] + WHOLE.replace(tag, tag[:-2], 1)[1:], [MADE]) for tag in CALL_TAGS[2:4]),
        *((swapped("</arg_value>", tag), [MADE]) for tag in ("</arg_key>", "<arg_value>")),
        *((swapped("</arg_key>", tag), [MADE]) for tag in ("</arg_value>", "<arg_key>")),
        *(
            (swapped("<arg_key>", tag), [MADE])
            for tag in ("<arg_value>", "</arg_key>", "</arg_value>")
        ),
        (swapped("<arg_key>", "</tool_call>"), [MADE]),
        *(
            (swapped("<arg_value>", tag), [MADE])
            for tag in ("</arg_value>", "<tool_call>", "<arg_key>")
        ),
        (swapped("</arg_key><arg_value>", "<arg_value></arg_key>"), [MADE]),
        (swapped("</arg_value></tool_call>", "</tool_call></arg_value>"), [MADE]),
        *(
            (last("<arg_key>", one), [MADE_BOTH])
            for one in ("", "<tool_call>", "<arg_key><arg_key>")
        ),
        *(
            (last("</arg_value><arg_key>", one), [MADE_BOTH])
            for one in ("<arg_key>", "</arg_value>")
        ),
        (BOTH.replace("x</arg_value>", "x</arg_val"), [MADE_BOTH]),
        *(
            (f"<tool_call>now{end}", [NOW])
            for end in ("", "</tool_c", "</arg_value>", "</arg_value></tool_call>")
        ),
        ("<tool_call>now<tool_call>now</tool_call>", [NOW] * 2),
        *((WHOLE.replace("x", f"a {tag} b"), []) for tag in CALL_TAGS),
        (WHOLE.replace("x", "Use <arg_key>limit</arg_key> so"), []),
        (WHOLE.replace("x", WHOLE), []),
        *(
            (swapped("x</arg_value></tool_call>", one), [])
            for one in ("x", "x</arg_value>done", "x</arg_v")
        ),
        (swapped("search", "nosuch", swapped("<arg_key>", "<tool_call>")), []),
        (swapped("query", "nosuch", without("<arg_key>")), []),
        (f"<tool_call>search{WHOLE}", [MADE]),
    ],
)
def test_calls_as_models_write_them(text, made):
    for pieces in ([text], text, pieces_of(Random(1), text)):
        for before, in_reasoning in (("", False), ("So.</think>", True)):
            parts = folded(parsed([before, *pieces], in_reasoning, tools=TOOLS))
            assert check_parts(parts) == made


@pytest.mark.parametrize("tag", CALL_TAGS[2:])
def test_what_is_not_offered_is_recovered_where_its_tags_alone_tell(tag):
    text = without(tag).replace("search", "f")
    parts = folded(parsed([text]))
    expected = [] if tag == "<arg_key>" else [("f", {"query": "x"})]
    assert check_parts(parts) == expected


def test_a_piece_before_a_tag_is_dropped_however_it_came():
    text = "<tool_call>f</arg_val</tool_call>"
    for pieces in ([text], text, [text[:14], text[14:]]):
        assert check_parts(folded(parsed(pieces))) == [("f", {})]


def test_two_readings_are_none():
    tools = [tool("look", up="string"), tool("lo", okup="string")]
    text = "<tool_call>lookup</arg_key><arg_value>1</arg_value></tool_call>"
    assert folded(parsed([text], tools=tools)) == [["content", text]]
    for one in tools:
        [(name, arguments)] = check_parts(folded(parsed([text], tools=[one])))
        assert (name, list(arguments.values())) == (one["function"]["name"], ["1"])
