"""The figures of an answer as one line."""

import pytest

from glm_engine.terminal.ending import Ending


@pytest.mark.parametrize(
    ("drafts", "end"),
    [
        ((), "prompt: 9 tokens, 4 cached"),
        ((0, 0), "prompt: 9 tokens, 4 cached"),
        ((1200, 1000), "prompt: 9 tokens, 4 cached; draft tokens: 1,000 of 1,200 accepted"),
    ],
)
def test_draft_tokens_are_told_where_there_were_some(drafts, end):
    line = Ending("stop", 2.0, 1.0, 3, 9, 4, *drafts).line()
    assert line == f"3 tokens in 2.00 s (2.0 tokens/s, first token after 1.00 s); {end}"
