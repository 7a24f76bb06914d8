"""Walks through grammars of capitals' vocabulary: along a text, and at random."""

import random
from functools import cache

import numpy

from glm_engine.chat import ChatTemplate
from glm_engine.grammar import CallSpelling, Grammar, GrammarCompiler, Limits, Matcher
from glm_engine.options import CAPITALS
from glm_engine.tokenizer import GlmTokenizer

VOCAB_SIZE = 2048
ENDING_IDS = (2027, 2034, 2036)
CLOSING = (b"</tool_call>", b"</arg_value>", b'"', b"}", b"]", b",", b"0")


@cache
def tokenizer() -> GlmTokenizer:
    return GlmTokenizer(CAPITALS)


@cache
def spelling() -> CallSpelling:
    return CallSpelling.of_template(ChatTemplate(CAPITALS))


def compiler_of_capitals(vocab_size: int = VOCAB_SIZE, **limits) -> GrammarCompiler:
    return GrammarCompiler(tokenizer(), vocab_size, ENDING_IDS, spelling(), Limits(**limits))


def ids_of(text: str) -> list[int]:
    return tokenizer().encode(text, add_special_tokens=False)


def allowed(mask: numpy.ndarray) -> list[int]:
    """The token ids of a mask, read bit by bit."""
    words = mask.tolist()
    return [token for token in range(32 * len(words)) if words[token >> 5] >> (token & 31) & 1]


def refused_at(grammar: Grammar, text: str) -> int | None:
    """How many tokens of a text and its end are allowed before one is not; None: all are."""
    matcher = grammar.start()
    for at, token in enumerate([*ids_of(text), ENDING_IDS[1]]):
        if token not in allowed(matcher.mask()):
            return at
        matcher.accept(token)
    assert matcher.is_finished
    return None


def takes(grammar: Grammar, text: str) -> bool:
    return refused_at(grammar, text) is None


def next_token(matcher: Matcher, source: random.Random, is_late: bool) -> int:
    tokens = allowed(matcher.mask())
    if not is_late:
        return source.choice([one for one in tokens if one not in ENDING_IDS] or tokens)
    spelled = {tokenizer().bytes_of(token): token for token in tokens}
    ends = [token for token in tokens if token in ENDING_IDS]
    closing = [spelled[text] for text in CLOSING if text in spelled]
    return (ends or closing or [source.choice(tokens)])[0]


def random_text(grammar: Grammar, seed: int, eager: int = 30, longest: int = 3000) -> str:
    """A text made of allowed tokens alone, at random, brought to an end after `eager` tokens."""
    source, matcher, tokens = random.Random(seed), grammar.start(), []
    while len(tokens) < longest:
        token = next_token(matcher, source, len(tokens) >= source.randint(0, eager))
        matcher.accept(token)
        if token in ENDING_IDS:
            assert matcher.is_finished
            return tokenizer().decode(tokens, skip_special_tokens=False)
        tokens.append(token)
    raise AssertionError(f"no end within {longest} tokens: {tokenizer().decode(tokens)!r}")
