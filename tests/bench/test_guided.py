"""`tools.bench.guided`: the widened tokenizer, and a small run on the CPU device."""

import pytest
from click import ClickException
from click.testing import CliRunner

from glm_engine.text.grammar import GrammarCompiler
from glm_engine.text.tokenizer import GlmTokenizer
from tests.engine.running import open_engine
from tests.reference.capitals import CAPITALS
from tools.bench.guided import WARM_UP, compiled, main, measure, widened

VOCAB = 2048


def test_a_widened_tokenizer_has_a_token_for_every_id_and_spells_as_before(tmp_path):
    size, text = 4000, '{"city": "Paris"}'
    before, after = GlmTokenizer(CAPITALS), GlmTokenizer(widened(CAPITALS, size, tmp_path))
    assert after.decode(after.encode(text)) == text
    assert set(after.vocabulary().values()) == set(range(size))
    assert set(before.vocabulary().items()) <= set(after.vocabulary().items())


def test_free_guided_and_mixed_streams_each_have_a_rate():
    compiler = GrammarCompiler(GlmTokenizer(CAPITALS), VOCAB, [VOCAB - 1])
    try:
        grammars = compiled(compiler, 4)
    finally:
        compiler.close()
    with open_engine(CAPITALS, max_batch=4, max_seq=384) as engine:
        rows = measure(engine, grammars, num_streams=4, num_tokens=200)
        assert engine.info()["owned_pages"] == engine.info()["live_requests"] == 0
    assert [(row["free"], row["guided"]) for row in rows] == [(4, 0), (0, 4), (2, 2)]
    assert all(row["tokens_per_second"] > 0 for row in rows)
    assert rows[0]["late_masks"] == 0, "no row of free streams waits for a mask"


def test_streams_that_end_within_the_warm_up_have_no_rate():
    refused = pytest.raises(ClickException, match="expected streams of more than 8 tokens")
    with open_engine(CAPITALS, max_batch=2, max_seq=160) as engine, refused:
        measure(engine, [], num_streams=2, num_tokens=WARM_UP)


def test_one_of_model_and_synthetic_is_needed():
    result = CliRunner().invoke(main, [])
    assert result.exit_code == 2
    assert "expected either --synthetic or --model" in result.output
