"""Which tokenizers a grammar can use."""

import json
import shutil

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.core.errors import BadInputError
from glm_engine.text.grammar.vocabulary import Vocabulary
from glm_engine.text.tokenizer import GlmTokenizer
from tests.python.text.grammar.walks import ENDING_IDS, VOCAB_SIZE, tokenizer


def test_tags_are_named_by_their_ids():
    vocabulary = Vocabulary(tokenizer(), VOCAB_SIZE, ENDING_IDS)
    assert vocabulary.tag("<tool_call>") == f"<[{tokenizer().id_of('<tool_call>')}]>"
    assert vocabulary.tag("<call>") == '"<call>"'


def test_a_model_smaller_than_its_tokenizer_is_refused():
    with pytest.raises(BadInputError, match=r"tokenizer\.json: cannot be used with grammars.*2047"):
        Vocabulary(tokenizer(), VOCAB_SIZE - 1, ENDING_IDS)


def test_a_model_that_never_ends_is_refused():
    with pytest.raises(BadInputError, match="has no end-of-text token"):
        Vocabulary(tokenizer(), VOCAB_SIZE, [])


@pytest.mark.parametrize("length", [255, 256])
def test_the_longest_token(tmp_path, length):
    shutil.copytree(CAPITALS, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))
    path = tmp_path / "model" / "tokenizer.json"
    table = json.loads(path.read_text(encoding="utf-8"))
    number = table["model"]["vocab"].pop("orshavn")
    table["model"]["vocab"]["-" * length] = number
    table["model"]["merges"] = []
    path.write_text(json.dumps(table), encoding="utf-8")
    long = GlmTokenizer(tmp_path / "model")
    if length == 255:
        assert Vocabulary(long, VOCAB_SIZE, ENDING_IDS).tokens.vocab_size == VOCAB_SIZE
    else:
        with pytest.raises(BadInputError, match="has 256 bytes"):
            Vocabulary(long, VOCAB_SIZE, ENDING_IDS)
