"""Damaged calls through the four interfaces, streamed and whole: no call that runs has a tag."""

import json
import os
from random import Random

import pytest

from tests.python.text.dialogue.damage import check_call, cut_somewhere, pieces_of, random_turn
from tests.server.damaged_turns import STOP, read_everywhere

NUM_TURNS = int(os.environ.get("GLM_TEST_DAMAGED_TURNS", "300"))
ENDS = ["end", "end", "length", "stop text"]


def ended(random, turn):
    """Return the text of a turn that ends somehow, and the engine's reason."""
    end = random.choice(ENDS)
    if end == "end":
        return turn.text, "stop_token", False
    cut = cut_somewhere(random, turn.text)
    return (cut, "length", True) if end == "length" else (f"{cut}{STOP}", "stop_token", True)


def test_no_interface_runs_a_damaged_call():
    seed = int(os.environ.get("GLM_TEST_DAMAGE_SEED", "0")) or Random().randint(1, 1 << 32)
    print(f"seed {seed}")
    random, num_calls, num_asking = Random(seed), 0, 0
    for _ in range(NUM_TURNS):
        turn = random_turn(random)
        text, reason, is_cut = ended(random, turn)
        calls, asks = read_everywhere(random, text, reason, turn.in_reasoning, pieces_of)
        for name, arguments in calls:
            check_call(name, json.dumps(arguments))
        assert not (is_cut and asks), text
        num_calls, num_asking = num_calls + len(calls), num_asking + asks
    print(f"{NUM_TURNS} turns, {num_calls} calls, {num_asking} turns that ask for theirs")
    assert num_asking > NUM_TURNS // 6


WHOLE = "<tool_call>search<arg_key>query</arg_key><arg_value>x</arg_value></tool_call>"
MADE = ([("search", {"query": "x"})], True)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE[:-12],
        WHOLE[:-1],
        WHOLE[:-11],
        f"{WHOLE[:-12]}\n",
        WHOLE.replace("<arg_key>", "<tool_call>"),
        WHOLE.replace("<arg_key>", ""),
        WHOLE.replace("<arg_key>", " "),
    ],
)
def test_calls_as_models_write_them(text):
    random = Random(1)
    for _ in range(4):
        assert read_everywhere(random, text, "stop_token", False, pieces_of) == MADE
        thought = f"So.</think>{text}"
        assert read_everywhere(random, thought, "stop_token", True, pieces_of) == MADE


@pytest.mark.parametrize("num_left_out", range(1, len(WHOLE)))
def test_a_turn_that_was_cut_makes_no_call(num_left_out):
    random, text = Random(num_left_out), WHOLE[:-num_left_out]
    for cut, reason in ((text, "length"), (f"{text}{STOP}", "stop_token")):
        assert read_everywhere(random, cut, reason, False, pieces_of) == ([], False)
