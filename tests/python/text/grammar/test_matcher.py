"""One answer: refused tokens, copies that do not meet."""

import pytest

from glm_engine.core.errors import BadInputError
from tests.python.text.grammar.walks import allowed, ids_of


def test_a_token_that_the_mask_forbids_is_an_error_and_stays_one(compiler):
    matcher = compiler.choice(["Paris"]).start()
    with pytest.raises(BadInputError, match=f"the grammar failed on token {ids_of('x')[0]}"):
        matcher.accept(ids_of("x")[0])
    with pytest.raises(BadInputError, match="the next token"):
        matcher.mask()


def test_answers_of_one_grammar_do_not_meet(compiler):
    grammar = compiler.choice(["Paris", "Oslo"])
    one, other = grammar.start(), grammar.start()
    for token in ids_of("Oslo"):
        one.accept(token)
    assert one.is_complete
    assert not other.is_complete
    assert allowed(other.mask()) == allowed(grammar.start().mask())
