"""Grammars that clients write themselves: what they take, and where they are wrong."""

import time

import pytest

from glm_engine.core.errors import BadInputError
from tests.python.text.grammar.walks import takes

LIST = 'start: item ("," item)*\nitem: "a" | "b" /[0-9]+/\n'
ITEMS = 'root ::= item ("," item)*\nitem ::= "a" | "b" [0-9]+ # two kinds\n'
CHAIN = "\n".join(f"r{at} ::= r{at + 1}" for at in range(600))


@pytest.mark.parametrize("text", [LIST, ITEMS, f"// a list\n{LIST}", f"# a list\n{ITEMS}"])
def test_both_syntaxes(compiler, text):
    grammar = compiler.grammar(text)
    for right in ("a", "b12,a", "a,b3,a"):
        assert takes(grammar, right)
    for wrong in ("", "b", "a,", "c"):
        assert not takes(grammar, wrong)


def test_what_else_lark_has(compiler):
    grammar = compiler.grammar('start: NAME obj\nNAME: /[a-z]+/\nobj: %json {"type": "object"}')
    assert takes(grammar, 'x{"a": 1}')
    assert takes(compiler.grammar("start[lazy]: /a+/"), "a")
    assert takes(compiler.grammar('%import common.INT\nstart: INT "x"'), "17x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('start: "a" b', r'^own: at 1\(8\): unknown name: "b"'),
        ('start: "a"\n  | (b', r"^own: 2\("),
        ("start: /(?=a)b/", r"^own: at 1\(8\): .*look-around.*not supported"),
        ('start: %json {"type": "strin"}', r"^own: at 1\(8\): .*Invalid type: strin"),
        ("start: <think>", r"^own: at 1\(8\): unknown special token"),
        ("start: <[99999999]>", r"^own: at 1\(8\): Token range end too large"),
        ("start: a\na: a", "^own: cannot match any text"),
        ('other: "a"', "^own: .*start"),
        ("", "^own: "),
        ("{}", "^own: "),
        ('root ::= "a" (', r"^own: Expected '\)' at line 1"),
        ("root ::= other", "^own: Rule 'other' not found"),
        ('other ::= "a"', "^own: No 'root' rule found"),
        ('root ::= "a"{' + "9" * 6000 + "}", "^own: "),
        ("root ::= " + "(" * 9000, "^own: groups are nested too deeply"),
        (f'{CHAIN}\nr600 ::= "a"\nroot ::= r0', "^own: the EBNF grammar has 602 rules"),
        (
            'root ::= "' + "a" * 40_000 + '"',
            "^own: the EBNF grammar has 1 rules and 40011 characters",
        ),
        ('start: "' + "a" * 140_000 + '"', "^own: 140009 bytes; the limit is 131072"),
        ("start: /a{1000000}/", "^own: the grammar takes more than"),
        ('start: "\ud800"', "^own: not valid Unicode"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(compiler, text, message):
    began = time.process_time()
    with pytest.raises(BadInputError, match=message):
        compiler.grammar(text, name="own")
    assert time.process_time() - began < 1
