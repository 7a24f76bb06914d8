"""The matcher of `re:` entries against Python's `re.match`, which compressed-tensors uses."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import loader

NAMES = [
    "lm_head",
    "model.layers.3.mlp.gate",
    "model.layers.3.mlp.gate_proj",
    "model.layers.11.self_attn.q_proj",
    "model.layers.92.eh_proj",
    "model.layers.3.mlp.experts.159.down_proj",
    "",
]
PATTERNS = [
    r".*\.mlp\.gate$",
    r".*lm_head",
    r"lm_head$",
    r"model\.layers\.\d+\.mlp\.gate$",
    r"^model.layers.[0-2]\.",
    r".*self_attn\.(q|k|v|o)_proj$",
    r"model\.layers\.(?:0|1|92)\..*",
    r"model\.layers\.9[0-9]\.[\w.]+$",
    r".*experts\.\d{1,2}\.",
    r".*experts\.\d{3}\.",
    r"[^.]+$",
    r"[^\d]*$",
    r"\S+\s?$",
    r"(((a)?)*)*",
    r"",
    r"^$",
    r"$|lm",
]
ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^c]", r"\w", "^", "$"])
REPEATS = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{,2}", "{1,}", "*?", "+?", "??"])


def groups(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sequence = st.lists(inner, max_size=3).map("".join)
    either = st.tuples(sequence, sequence).map(lambda pair: f"({pair[0]}|{pair[1]})")
    repeated = st.tuples(sequence, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
    return sequence | either | repeated


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", NAMES)
def test_names_of_modules(pattern, name):
    assert loader.match(pattern, name) is (re.match(pattern, name) is not None)


@given(st.recursive(ATOMS, groups, max_leaves=6), st.text("abc", max_size=7))
@settings(max_examples=400, deadline=None)
def test_generated_patterns(pattern, name):
    assert loader.match(pattern, name) is (re.match(pattern, name) is not None)


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 5000 + "b"])
def test_no_pattern_takes_exponential_time(name):
    assert loader.match(r"(a*)*b", name) is name.endswith("b")
    assert loader.match(r"(a|a)*b", name) is name.endswith("b")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=a)", "group is not supported"),
        ("(?P<n>a)", "group is not supported"),
        (r"(a)\1", "escape sequence is not supported"),
        (r"\bgate", "escape sequence is not supported"),
        ("(a", "a group has no closing parenthesis"),
        ("a)", "closing parenthesis"),
        ("[a", "a bracket expression is not closed"),
        ("[z-a]", "range is reversed"),
        ("*a", "a repeat operator has nothing to repeat"),
        ("a**", "a repeat operator cannot follow another repeat operator"),
        ("a{3,2}", "the repeat count in braces is invalid"),
        ("a{999}", "greater than 255"),
        ("(" * 100 + ")" * 100, "nested too deep"),
        ("((a{99}){99}){99}", "too large"),
        ("a\\", "ends with a backslash"),
    ],
)
def test_unreadable_patterns_are_refused(pattern, words):
    assert words in loader.match(pattern, "a")
