import json

import pytest

from tests import groups
from tools.checkpoint.vocabulary import (
    CONTROL_TOKENS,
    WRITTEN_TOKENS,
    train_tokenizer,
    write_tokenizer,
)

TEXTS = [f"The river number {n} flows from hill {n * 7} to lake {n * 13}." for n in range(90)]


def test_special_tokens_stand_at_the_end():
    tokenizer = train_tokenizer(TEXTS, 300)
    assert tokenizer.get_vocab_size() == 300
    special = [tokenizer.token_to_id(t) for t in (*CONTROL_TOKENS, *WRITTEN_TOKENS)]
    assert special == list(range(300 - len(special), 300))


def test_texts_too_small_for_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="should have 2048 entries"):
        train_tokenizer(["a b c"], 2048)


def test_control_tokens_are_special_and_written_ones_are_not(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 300)
    ids = tokenizer.encode("<|user|><think>x").ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>x"
    write_tokenizer(tokenizer, tmp_path, 512)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert len(config["added_tokens_decoder"]) == len(CONTROL_TOKENS) + len(WRITTEN_TOKENS)


def test_transformers_loads_it(tmp_path):
    transformers = groups.imported("transformers")
    tokenizer = train_tokenizer(TEXTS, 300)
    write_tokenizer(tokenizer, tmp_path, 512)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "[gMASK]<sop><|user|>The river\n number 70 — ünïcode"
    assert loaded.encode(text) == tokenizer.encode(text).ids
    assert loaded.eos_token == loaded.pad_token == "<|endoftext|>"
