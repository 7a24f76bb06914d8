"""Drawn requests: the seed decides, rates do not repeat each other, files are read."""

import json
import math

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.load.distributions import parse_lengths
from glm_engine.load.workload import (
    TEXT,
    WORDS,
    Workload,
    id_vocabulary,
    make_asks,
    read_prompts,
    word_vocabulary,
)

VOCABULARY = id_vocabulary(range(100, 400))


def workload(**changes):
    given = {"lengths": parse_lengths("uniform:5:9"), "outputs": parse_lengths("uniform:1:4")}
    return Workload(**{**given, "num_requests": 50, **changes})


def prompts_of(asks):
    return [tuple(ask.prompt) for ask in asks]


def test_the_seed_decides_and_points_differ():
    first, again = (make_asks(workload(), VOCABULARY, 7, 0, 10.0) for _ in range(2))
    assert first == again
    for seed, point in ((8, 0), (7, 1)):
        other = make_asks(workload(), VOCABULARY, seed, point, 10.0)
        assert not set(prompts_of(first)) & set(prompts_of(other))


def test_lengths_are_those_asked_behind_a_prefix_that_all_share():
    shared = workload(shared_prefix=20)
    asks = make_asks(shared, VOCABULARY, 3, 0, 10.0) + make_asks(shared, VOCABULARY, 3, 1, math.inf)
    prompts = prompts_of(asks)
    assert {len(prompt) for prompt in prompts} == set(range(25, 30))
    assert len({prompt[:20] for prompt in prompts}) == 1
    assert len({prompt[20:] for prompt in prompts}) == len(prompts)
    assert {ask.max_tokens for ask in asks} == {1, 2, 3, 4}
    assert all(100 <= token < 400 for prompt in prompts for token in prompt)


def test_words_make_up_the_tokens_asked():
    vocabulary = word_vocabulary(2 * len(WORDS))
    fixed = workload(lengths=parse_lengths("fixed:40"))
    for ask in make_asks(fixed, vocabulary, 3, 0, 10.0):
        assert len(ask.prompt.split()) == 20
        assert set(ask.prompt.split()) <= set(TEXT.split())


def test_words_stand_there_once():
    assert len(set(WORDS)) == len(WORDS) > 100


def test_prompts_of_a_file_come_in_turn_with_their_own_lengths(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one"}\n\n{"prompt": [1, 2], "max_tokens": 77}\n', "utf-8")
    asks = make_asks(workload(prompts=read_prompts(path), num_requests=3), None, 1, 0, math.inf)
    assert [ask.prompt for ask in asks] == ["one", [1, 2], "one"]
    assert asks[1].max_tokens == 77
    assert asks[0].max_tokens <= 4


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "prompts.jsonl:2: invalid JSON"),
        ("[]", 'prompts.jsonl:2: expected an object with "prompt" or "messages"'),
        ('{"prompt": ""}', "expected an object"),
        ('{"prompt": 5}', "expected an object"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens: expected a whole number above 0, got 0"),
        ('{"prompt": "a", "max_tokens": true}', "got True"),
        ('{"prompt": "a", "max_tokens": 99999999999999999999}', "above 0, got 9999"),
        ('{"prompt": "a\\ud83d"}', "prompts.jsonl:2: the prompt cannot be sent"),
        ('{"prompt": [99999999999999999999]}', "prompts.jsonl:2: the prompt cannot be sent"),
        ('{"prompt": [1, "a", null]}', "expected a list of token ids or of messages"),
    ],
)
def test_lines_that_are_no_prompts(tmp_path, line, words):
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "good"}}\n{line}\n', "utf-8")
    with pytest.raises(BadInputError) as caught:
        read_prompts(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("between", ["\u2028", "\x85", "\x0b"])
def test_only_a_line_feed_ends_a_line(tmp_path, between):
    path = tmp_path / "prompts.jsonl"
    line = json.dumps({"prompt": f"one{between}line"}, ensure_ascii=between == "\x0b")
    path.write_text(f"{line}\r\n  \n", "utf-8")
    assert read_prompts(path) == ((f"one{between}line", None),)


def test_more_tokens_than_anyone_means_are_refused():
    long = workload(lengths=parse_lengths("fixed:2147483647"))
    with pytest.raises(BadInputError, match="exceed 1,073,741,824 tokens"):
        make_asks(long, VOCABULARY, 1, 0, 10.0)


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"])
def test_files_without_prompts(tmp_path, content):
    path = tmp_path / "prompts.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInputError, match=str(path)):
        read_prompts(path)
