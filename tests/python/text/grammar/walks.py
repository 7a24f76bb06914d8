"""Walks through grammars of capitals' vocabulary: along a text, and at random."""

import random
from functools import cache

import numpy

from glm_engine.cli.options import CAPITALS
from glm_engine.text.dialogue import Opening
from glm_engine.text.grammar import CallSpelling, Grammar, GrammarCompiler, Limits, Matcher
from glm_engine.text.template import ChatTemplate
from glm_engine.text.tokenizer import GlmTokenizer

VOCAB_SIZE = 2048
ENDING_IDS = (2027, 2034, 2036)
DRAFTING = (
    *("json_schema", "json_object", "regex", "choice", "grammar"),
    *("tool_calls", "calls_or_document"),
)
TAGS = (
    b"</think>",
    b"<tool_call>f</tool_call>",
    b"</arg_key><arg_value>",
    b"</arg_value></tool_call>",
)
CLOSING = (b"</think>", b"</tool_call>", b"</arg_value>", b'"', b"}", b"]", b",", b"0")


@cache
def tokenizer() -> GlmTokenizer:
    return GlmTokenizer(CAPITALS)


@cache
def spelling() -> CallSpelling:
    return CallSpelling.of_template(ChatTemplate(CAPITALS))


class EagerCompiler:
    """A compiler that compiles at once what it drafts."""

    def __init__(self, compiler: GrammarCompiler):
        self.compiler = compiler

    def __getattr__(self, name):
        found = getattr(self.compiler, name)
        if name not in DRAFTING:
            return found
        return lambda *arguments, **options: self.compiler.compile(found(*arguments, **options))


def compiler_of_capitals(vocab_size: int = VOCAB_SIZE, **limits) -> EagerCompiler:
    compiler = GrammarCompiler(tokenizer(), vocab_size, ENDING_IDS, spelling(), Limits(**limits))
    return EagerCompiler(compiler)


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


@cache
def plain_tokens() -> dict[int, bytes]:
    """What every token spells that is not an added one."""
    added = tokenizer().tokenizer.get_added_tokens_decoder()
    known = tokenizer().vocabulary().values()
    return {token: tokenizer().bytes_of(token) for token in known if token not in added}


def size_begun(text: bytes, spelled: bytes) -> int:
    """How much of a tag a text ends in that a token goes on spelling; -1: it spells none."""
    return max(
        (
            size
            for tag in TAGS
            for size in range(len(tag))
            if text.endswith(tag[:size])
            and (tag[size:].startswith(spelled) or spelled.startswith(tag[size:]))
        ),
        default=-1,
    )


@cache
def pieces_of_tags() -> dict[int, bytes]:
    """The tokens that can have a part in a tag spelled in letters."""
    begins = [tag[:size] for tag in TAGS for size in range(len(tag))]
    return {
        token: spelled
        for token, spelled in plain_tokens().items()
        if spelled and any(size_begun(begin, spelled) >= 0 for begin in begins)
    }


def hostile_tokens(mask: numpy.ndarray, text: bytes) -> list[int]:
    """Allowed tokens that go on spelling a tag in letters, the one that is spelled furthest."""
    sizes = {
        token: size_begun(text, spelled)
        for token, spelled in pieces_of_tags().items()
        if mask[token >> 5] >> (token & 31) & 1
    }
    most = max(sizes.values(), default=-1)
    return [token for token, size in sizes.items() if size == most >= 0]


def next_token(
    matcher: Matcher, source: random.Random, is_late: bool, text: bytes = b"", spite: float = 0
) -> int:
    mask = matcher.mask()
    if source.random() < spite and (hostile := hostile_tokens(mask, text)):
        return source.choice(hostile)
    tokens = allowed(mask)
    if not is_late:
        return source.choice([one for one in tokens if one not in ENDING_IDS] or tokens)
    spelled = {tokenizer().bytes_of(token): token for token in tokens}
    ends = [token for token in tokens if token in ENDING_IDS]
    closing = [spelled[text] for text in CLOSING if text in spelled]
    return (ends or closing or [source.choice(tokens)])[0]


def random_text(
    grammar: Grammar,
    seed: int,
    eager: int = 30,
    longest: int = 3000,
    opening: Opening = Opening.ANSWER,
    spite: float = 0,
) -> str:
    """A text made of allowed tokens alone, at random, brought to an end after `eager` tokens.

    spite: how often a token is chosen because it spells a tag in letters.
    """
    source, matcher, tokens = random.Random(seed), grammar.start(opening), []
    text = b""
    while len(tokens) < longest:
        is_late = len(tokens) >= source.randint(0, eager)
        token = next_token(matcher, source, is_late, text, spite)
        matcher.accept(token)
        if token in ENDING_IDS:
            assert matcher.is_finished
            return tokenizer().decode(tokens)
        tokens.append(token)
        text = (text + tokenizer().bytes_of(token))[-32:]
    raise AssertionError(f"no end within {longest} tokens: {tokenizer().decode(tokens)!r}")
