"""Masks behind drafts and after their rollback against matchers that took the tokens alone."""

import random
from functools import cache

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.text.dialogue import Opening
from glm_engine.text.grammar import Grammar, Matcher
from tests.python.text.grammar.test_masks import GRAMMARS
from tests.python.text.grammar.test_schemas_at_random import SCHEMAS, SETTINGS, whole
from tests.python.text.grammar.walks import ENDING_IDS, next_token, tokenizer

MOST_TOKENS = 60
MOST_DRAFTS = 8
TOOLS = [
    {
        "function": {
            "name": "find",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
                "required": ["text"],
            },
        }
    }
]
MANY = {
    **GRAMMARS,
    "arguments": lambda one: one.tool_calls(TOOLS),
    "prose": lambda one: one.tool_calls(TOOLS, at_least=0),
    "blank": lambda one: one.regex("\n?(yes|no)+"),
    "forced": lambda one: one.choice(["the capital of France", "the capital of Italy", "<|user|>"]),
}


class Walk:
    """A matcher that goes ahead along drafts and back, beside one that takes true tokens alone."""

    def __init__(self, grammar: Grammar, opening: Opening, seed: int):
        self.draw = random.Random(seed)
        self.matcher, self.alone = grammar.start(opening), grammar.start(opening)
        self.tokens: list[int] = []

    def choose(self, matcher: Matcher, drafts: list[int]) -> int:
        is_late = len(self.tokens) > MOST_TOKENS // 2
        last = [*self.tokens, *drafts][-16:]
        text = b"".join(tokenizer().bytes_of(token) for token in last)
        return next_token(matcher, self.draw, is_late, text, spite=0.4)

    def go_ahead(self) -> None:
        place, drafts = self.matcher.place(), []
        for _ in range(self.draw.randrange(MOST_DRAFTS + 1)):
            token = self.choose(self.matcher, drafts)
            if not self.matcher.can_take_back(token):
                break
            self.matcher.accept(token)
            drafts.append(token)
            self.check([*self.tokens, *drafts])
        self.matcher.rollback(place)

    def check(self, tokens: list[int]) -> None:
        expected = self.alone.after(tokens)
        assert numpy.array_equal(self.matcher.mask(), expected.mask()), tokenizer().decode(tokens)
        assert self.matcher.is_complete == expected.is_complete

    def run(self) -> None:
        while len(self.tokens) < MOST_TOKENS:
            self.go_ahead()
            assert numpy.array_equal(self.matcher.mask(), self.alone.mask())
            token = self.choose(self.alone, [])
            self.matcher.accept(token)
            self.alone.accept(token)
            self.tokens.append(token)
            if token in ENDING_IDS:
                return


@cache
def grammar_named(compiler, name: str) -> Grammar:
    return MANY[name](compiler)


@pytest.mark.parametrize("opening", Opening)
@pytest.mark.parametrize("name", MANY)
def test_drafts_and_their_rollback_change_no_mask(name, opening, compiler):
    grammar = grammar_named(compiler, name)
    for seed in range(6):
        Walk(grammar, opening, seed).run()


@SETTINGS
@given(schema=SCHEMAS.map(whole), seed=st.integers(0, 999))
def test_drafts_change_no_mask_of_a_random_schema(schema, seed, compiler):
    Walk(compiler.json_schema(schema, strict=False), Opening.ANSWER, seed).run()
