"""Prompt lookup against a model in Python, over random texts."""

import random
from contextlib import closing

import pytest

from tests.engine.lookup_model import SHORTEST, LookupModel
from tests.engine.probes import Lookup

LENGTHS = [0, 1, 2, 3, 4, 31, 97, 1000, 4096]
MOST = 16
VOCAB = 151552


def text_of(draw: random.Random, length: int, num_tokens: int) -> list[int]:
    """Tokens in which parts of what came before come again, so that matches are long and many."""
    tokens = []
    while len(tokens) < length:
        begin = draw.randrange(len(tokens) + 1)
        again = tokens[begin : begin + draw.randrange(40)] if draw.random() < 0.5 else []
        tokens += [*again, draw.randrange(num_tokens)]
    return tokens[:length]


def opened(num_tokens: int, prediction: list[int], prompt: list[int]) -> closing:
    found = Lookup(num_tokens)
    found.predict(prediction)
    found.read(prompt)
    return closing(found)


def answer_of(draw: random.Random, model: LookupModel, length: int, num_tokens: int):
    """Output tokens, of which the model expects most."""
    for _ in range(length):
        expected = model.continuation(1)
        yield expected[0] if expected and draw.random() < 0.9 else draw.randrange(num_tokens)


@pytest.mark.parametrize("num_tokens", [1, 2, 5, 50, VOCAB])
@pytest.mark.parametrize("prediction_length", LENGTHS)
def test_continuations_are_those_of_the_model(prediction_length, num_tokens, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    draw = random.Random(seed)
    for prompt_length in [length for length in LENGTHS if length > 0]:
        prediction = text_of(draw, prediction_length, num_tokens)
        prompt = text_of(draw, prompt_length, num_tokens)
        capacity = prediction_length + prompt_length + 300
        model = LookupModel(capacity, prediction, prompt)
        with opened(capacity, prediction, prompt) as lookup:
            assert lookup.continuation(MOST) == model.continuation(MOST)
            for token in answer_of(draw, model, 300, num_tokens):
                model.push(token)
                lookup.push(token)
                most = draw.randrange(1, MOST + 1)
                assert lookup.continuation(most) == model.continuation(most)


def test_the_longest_match_wins_and_of_equals_the_latest():
    prompt = [1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 8, 2, 3, 4, 70, 1, 2, 3, 4]
    with opened(64, [], prompt) as lookup:
        assert lookup.continuation(1) == [50]
    with opened(64, [], [*prompt[:-4], 6, 2, 3, 4]) as lookup:
        assert lookup.continuation(1) == [70]


def test_fewer_tokens_than_a_match_needs_find_no_continuation():
    for length in range(2 * SHORTEST + 1):
        tokens = [5, 6, 7] * 2
        with opened(64, [], [*tokens, 9][-length:] if length else [9]) as lookup:
            assert lookup.continuation(MOST) == []


def test_a_text_that_repeats_itself_goes_on_around():
    with opened(64, [], [9, *[1, 2, 3, 4] * 2]) as lookup:
        assert lookup.continuation(10) == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


def test_a_prediction_is_followed_from_its_first_token_and_left_where_it_is_wrong():
    with opened(64, [11, 12, 13, 14, 15, 16], [1, 2, 3]) as lookup:
        assert lookup.continuation(MOST) == [11, 12, 13, 14, 15, 16]
        lookup.push(11)
        assert lookup.continuation(2) == [12, 13]
        lookup.push(99)
        assert lookup.continuation(MOST) == []
        for token in (12, 13, 14):
            lookup.push(token)
        assert lookup.continuation(MOST) == [15, 16]


def test_a_prediction_wins_over_an_equal_match_of_the_prompt():
    with opened(64, [1, 2, 3, 50], [7, 1, 2, 3, 60, 8]) as lookup:
        for token in (9, 1, 2, 3):
            lookup.push(token)
        assert lookup.continuation(1) == [50]


def test_no_match_and_no_continuation_crosses_the_end_of_the_prediction():
    with opened(64, [4, 5, 6, 7], [8, 9, 10]) as lookup:
        for token in (3, 6, 7, 8):
            lookup.push(token)
        assert lookup.continuation(MOST) == []
    with opened(64, [4, 5, 6, 7], [8, 9, 10]) as lookup:
        assert lookup.continuation(MOST) == [4, 5, 6, 7]
