"""Masks against a slow oracle that offers every token to a copy of the matcher."""

import json
import random

import numpy
import pytest

from glm_engine.text.grammar import GrammarCompiler
from tests.python.text.grammar.walks import (
    ENDING_IDS,
    VOCAB_SIZE,
    EagerCompiler,
    allowed,
    compiler_of_capitals,
    next_token,
    takes,
    tokenizer,
)

NUM_STEPS = 12
GRAMMARS = {
    "object": lambda one: one.json_object(),
    "array": lambda one: one.json_schema({"type": "array", "items": {"type": "number"}}),
    "text": lambda one: one.json_schema({"type": "string", "maxLength": 6}),
    "pattern": lambda one: one.regex("[A-Z][a-zé]+( [A-Z][a-z]+)?|\\d{3}"),
    "choice": lambda one: one.choice(["Paris", "Pari", "Oslo", "", "日本"]),
    "calls": lambda one: one.tool_calls([{"function": {"name": "f", "parameters": {}}}]),
}
TOKENIZER_SIZE = 2048
EXTRA_TOKENS = (0, 31, 32, 33)


def accepted(matcher, vocab_size: int) -> list[int]:
    return [
        token
        for token in range(vocab_size)
        if matcher.state.deep_copy().try_consume_tokens([token]) == 1
    ]


def is_forced(matcher, token: int) -> bool:
    """Whether a token spells the beginning of bytes that the grammar leaves no choice in."""
    forced, spelled = matcher.state.compute_ff_bytes(), tokenizer().bytes_of(token)
    return bool(forced) and (spelled.startswith(forced) or forced.startswith(spelled))


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_mask_holds_what_can_be_accepted(compiler, name):
    matcher, source = GRAMMARS[name](compiler).start(), random.Random(7)
    for _ in range(NUM_STEPS):
        shown = allowed(matcher.mask())
        if matcher.is_finished:
            assert shown == list(ENDING_IDS)
            break
        taken = accepted(matcher, TOKENIZER_SIZE)
        if shown != taken:
            assert set(shown) < set(taken)
            assert all(is_forced(matcher, token) for token in shown)
        matcher.accept(next_token(matcher, source, is_late=False))


def test_where_bytes_are_forced_the_checkpoints_own_tokens_spell_them(compiler):
    text = '"The capital of France is Paris"'
    matcher = compiler.json_schema({"const": text[1:-1]}).start()
    for token in tokenizer().encode(text, add_special_tokens=False):
        assert allowed(matcher.mask()) == [token]
        matcher.accept(token)
    assert allowed(matcher.mask()) == list(ENDING_IDS)


@pytest.mark.parametrize("extra", EXTRA_TOKENS)
def test_tokens_past_the_tokenizer_are_never_allowed(extra):
    compiler = compiler_of_capitals(TOKENIZER_SIZE + extra)
    matcher = compiler.regex("(?s:.*)").start()
    mask = matcher.mask()
    assert mask.dtype == numpy.uint32
    assert mask.shape == (-(-(TOKENIZER_SIZE + extra) // 32),)
    assert max(allowed(mask)) < TOKENIZER_SIZE
    assert takes(compiler.regex("(?s:.*)"), "Zürich, 日本\n")
    compiler.close()


def test_added_tokens_are_no_text(compiler):
    shown = set(allowed(compiler.regex("(?s:.*)").start().mask()))
    added = set(tokenizer().tokenizer.get_added_tokens_decoder())
    assert shown & added == set(ENDING_IDS)
    assert takes(compiler.regex("(?s:.*)"), "< think >")


def test_an_end_comes_only_where_the_text_is_whole(compiler):
    matcher = compiler.regex("ab?").start()
    assert not set(allowed(matcher.mask())) & set(ENDING_IDS)
    assert not matcher.is_complete
    matcher.accept(tokenizer().id_of("a"))
    assert set(ENDING_IDS) < set(allowed(matcher.mask()))
    assert matcher.is_complete
    assert not matcher.is_finished
    matcher.accept(tokenizer().id_of("b"))
    assert allowed(matcher.mask()) == list(ENDING_IDS)
    assert matcher.is_finished


@pytest.mark.parametrize(
    "text", ["<tool_call>x", "<think>", "</think> é", "<|endoftext|>", "a<|user|><|user|>b"]
)
def test_tags_that_must_come_as_text_come_in_letters(compiler, text):
    added = set(tokenizer().tokenizer.get_added_tokens_decoder())
    for grammar, expected in (
        (compiler.choice([text]), text),
        (compiler.json_schema({"const": text}), json.dumps(text, ensure_ascii=False)),
    ):
        source, matcher, tokens = random.Random(len(text)), grammar.start(), []
        while not matcher.is_finished:
            tokens.append(source.choice(allowed(matcher.mask())))
            matcher.accept(tokens[-1])
        assert not added & set(tokens)
        assert tokenizer().decode(tokens, skip_special_tokens=False) == expected


@pytest.mark.parametrize("end", ENDING_IDS)
def test_a_text_ends_where_there_is_one_end_token(end):
    compiler = EagerCompiler(GrammarCompiler(tokenizer(), VOCAB_SIZE, [end]))
    matcher = compiler.choice([" Paris", "<|user|>"]).start()
    for token in tokenizer().encode(" Paris", add_special_tokens=False):
        matcher.accept(token)
    assert allowed(matcher.mask()) == [end]
    spelled = compiler.choice(["<|user|>"]).start()
    assert end not in allowed(spelled.mask())
