"""Text that only its tag's own token ends: masks against the tag spelled out in letters."""

import json

import jsonschema
import numpy
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue import CallEnd, Content, DialogueParser, Opening, Reasoning
from glm_engine.text.dialogue.tags import CALL_TAGS
from tests.python.text.dialogue.folding import folded, parsed
from tests.python.text.grammar.rendering import written
from tests.python.text.grammar.walks import (
    ENDING_IDS,
    VOCAB_SIZE,
    allowed,
    compiler_of_capitals,
    ids_of,
    plain_tokens,
    random_text,
    spelling,
    takes,
    tokenizer,
)

THINK_END = tokenizer().id_of("</think>")
TOOL_CALL = tokenizer().id_of("<tool_call>")
NESTED = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 3},
        "note": {"type": "string"},
        "kind": {"enum": ["</think>", "<tool_calls>"]},
    },
    "required": ["names"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": NESTED}}]
SEEDS = st.integers(0, 2**32)
SETTINGS = settings(
    deadline=None,
    max_examples=15,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def letters(text: str) -> list[int]:
    """Tokens of single bytes that spell a text."""
    single = {spelled: token for token, spelled in plain_tokens().items()}
    return [single[bytes([byte])] for byte in text.encode()]


def is_letters_end(token: int, begun: str, tag: str) -> bool:
    return tag.encode() in begun.encode() + plain_tokens().get(token, b"")


@pytest.mark.parametrize("begun", ["", "x", *("</think>"[:size] for size in range(1, 8)), "<</th"])
def test_the_mask_of_a_thought_leaves_out_what_would_spell_its_end(compiler, begun):
    matcher = compiler.json_object().start(Opening.THOUGHT)
    for token in letters(begun):
        matcher.accept(token)
    shown = set(allowed(matcher.mask()))
    added = set(tokenizer().tokenizer.get_added_tokens_decoder())
    wrong = {token for token in plain_tokens() if is_letters_end(token, begun, "</think>")}
    assert shown - added == set(plain_tokens()) - wrong
    assert shown & added == added - tokenizer().special_ids - {TOOL_CALL}
    assert THINK_END in shown
    assert not shown & set(ENDING_IDS)


def test_a_thought_ends_with_its_token_and_the_grammar_begins(compiler):
    matcher = compiler.json_object().start(Opening.THOUGHT)
    for token in [*ids_of("Hm: {} "), *letters("</think")]:
        assert not matcher.is_complete
        assert not matcher.is_finished
        matcher.accept(token)
    matcher.accept(THINK_END)
    assert allowed(matcher.mask()) == allowed(compiler.json_object().start().mask())


@pytest.mark.parametrize("token", [TOOL_CALL, ENDING_IDS[0]])
def test_a_token_that_a_thought_refuses_is_an_error(compiler, token):
    matcher = compiler.json_object().start(Opening.THOUGHT)
    with pytest.raises(
        BadInputError, match=f"token {token} is not allowed while the model is thinking"
    ):
        matcher.accept(token)


def test_tokens_past_the_tokenizer_are_in_no_thought():
    compiler = compiler_of_capitals(VOCAB_SIZE + 40)
    mask = compiler.json_object().start(Opening.THOUGHT).mask()
    compiler.close()
    assert mask.dtype == numpy.uint32
    assert mask.shape == (-(-(VOCAB_SIZE + 40) // 32),)
    assert max(allowed(mask)) < VOCAB_SIZE


def turn_of(text: str, in_reasoning: bool, size: int) -> list:
    parser = DialogueParser(in_reasoning, TOOLS)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(delta for piece in pieces for delta in parser.push(piece)), *parser.finish()]


@SETTINGS
@given(SEEDS, st.sampled_from(Opening), st.sampled_from([0, 0.9, 0.99]), st.integers(1, 9))
def test_whatever_is_sampled_required_calls_come_after_the_thought(
    compiler, seed, opening, spite, size
):
    check_required_calls(compiler, seed, opening, spite, size)


def test_a_value_that_wants_to_spell_the_end_of_its_call(compiler):
    """This seed spells it where nothing keeps it from that."""
    check_required_calls(compiler, seed=7, opening=Opening.ANSWER, spite=0.9, size=5)


def check_required_calls(compiler, seed, opening, spite, size):
    grammar = compiler.tool_calls(TOOLS)
    text = random_text(grammar, seed, opening=opening, spite=spite)
    deltas = turn_of(text, opening is Opening.THOUGHT, size)
    assert not any(isinstance(delta, Content) for delta in deltas)
    parts = folded([delta for delta in deltas if not isinstance(delta, Reasoning)])
    assert parts
    assert all(is_whole for _, _, _, is_whole in parts)
    for _, name, arguments, _ in parts:
        assert name == "f"
        jsonschema.validate(json.loads(arguments), NESTED)


@SETTINGS
@given(SEEDS, st.sampled_from([0, 0.9, 0.99]))
def test_whatever_is_sampled_a_document_comes_after_the_thought(compiler, seed, spite):
    grammar = compiler.json_schema(NESTED)
    text = random_text(grammar, seed, opening=Opening.THOUGHT, spite=spite)
    parts = folded(parsed([text], True, parses_tool_calls=False))
    assert [kind for kind, _ in parts if kind != "reasoning"] == ["content"]
    jsonschema.validate(json.loads(parts[-1][1]), NESTED)


@SETTINGS
@given(SEEDS, st.sampled_from(Opening), st.sampled_from([0, 0.9, 0.99]))
def test_whatever_is_sampled_calls_or_a_document_come(compiler, seed, opening, spite):
    grammar = compiler.calls_or_document(TOOLS, NESTED)
    text = random_text(grammar, seed, opening=opening, spite=spite)
    deltas = parsed([text], opening is Opening.THOUGHT, tools=TOOLS, calls_come_first=True)
    parts = folded([delta for delta in deltas if not isinstance(delta, Reasoning)])
    if parts[0][0] == "call":
        assert all(part[0] == "call" and part[3] for part in parts)
    else:
        [[_, document]] = parts
        jsonschema.validate(json.loads(document), NESTED)


@SETTINGS
@given(SEEDS, st.sampled_from([0, 0.9, 0.99]))
def test_whatever_is_sampled_unasked_calls_are_whole(compiler, seed, spite):
    grammar = compiler.tool_calls(TOOLS, at_least=0)
    text = random_text(grammar, seed, opening=Opening.THOUGHT, spite=spite)
    deltas = turn_of(text, True, 5)
    parts = folded([delta for delta in deltas if not isinstance(delta, Reasoning)])
    calls = [part for part in parts if part[0] == "call"]
    assert len(calls) == sum(isinstance(delta, CallEnd) for delta in deltas)
    for _, _, arguments, _ in calls:
        jsonschema.validate(json.loads(arguments), NESTED)


@pytest.mark.parametrize("tag", CALL_TAGS)
def test_a_value_that_must_spell_a_tag_is_refused(compiler, tag):
    bare = {"properties": {"a": {"enum": [f"x{tag}"]}}, "required": ["a"]}
    with pytest.raises(
        BadInputError, match=rf"function\.parameters#/properties/a: .* contains {tag}"
    ):
        compiler.tool_calls([{"function": {"name": "f", "strict": True, "parameters": bare}}])
    grammar = compiler.tool_calls([{"function": {"name": "f", "parameters": bare}}])
    assert takes(grammar, written(spelling(), "f", {"a": "y"}))
    inside = {"properties": {"a": {"const": [f"x{tag}"]}}, "required": ["a"]}
    grammar = compiler.tool_calls([{"function": {"name": "f", "parameters": inside}}])
    with pytest.raises(BadInputError, match=f"would put .*{tag}"):
        random_text(grammar, seed=1)


THINK, NEWLINE = tokenizer().id_of("<think>"), ids_of("\n")[0]


@pytest.mark.parametrize("before", [[], [NEWLINE]])
@pytest.mark.parametrize("pattern", ["[ab]", "\n[ab]", "\n+[ab]"])
def test_a_thought_that_the_model_may_open(compiler, pattern, before):
    """Whatever stood before it, the answer after it begins the grammar anew."""
    grammar = compiler.regex(pattern)
    matcher = grammar.start(Opening.EITHER)
    for token in [*before, THINK]:
        assert token in allowed(matcher.mask())
        matcher.accept(token)
    assert not matcher.is_complete
    assert set(allowed(matcher.mask())) == set(allowed(grammar.start(Opening.THOUGHT).mask()))
    matcher.accept(THINK_END)
    assert allowed(matcher.mask()) == allowed(grammar.start().mask())


def test_a_line_of_layout_comes_before_a_thought_alone(compiler):
    matcher = compiler.regex("[ab]").start(Opening.EITHER)
    first = allowed(compiler.regex("[ab]").start().mask())
    assert sorted({*first, THINK, NEWLINE}) == allowed(matcher.mask())
    matcher.accept(NEWLINE)
    assert allowed(matcher.mask()) == [THINK]
    with pytest.raises(BadInputError, match="while the model is thinking"):
        matcher.accept(first[0])


def test_an_answer_that_has_begun_opens_no_thought(compiler):
    matcher = compiler.regex("\n?ab").start(Opening.EITHER)
    for text in ("\n", "a"):
        assert THINK in allowed(matcher.mask())
        matcher.accept(ids_of(text)[0])
    assert THINK not in allowed(matcher.mask())
    with pytest.raises(BadInputError):
        matcher.accept(THINK)
