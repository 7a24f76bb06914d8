"""The checkpoint's tokenizer: both ways, streamed, and against the library's own."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from glm_engine.cli.options import CAPITALS
from glm_engine.core.errors import BadInputError
from glm_engine.text.tokenizer import GlmTokenizer, tokenizer_config


@pytest.fixture(scope="module")
def tokenizer():
    return GlmTokenizer(CAPITALS)


@given(text=st.text())
@settings(deadline=None)
def test_text_comes_back(text):
    tokenizer = shared()
    text = text.encode("utf-8", "replace").decode()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@given(text=st.text(), adds=st.booleans())
@settings(deadline=None)
def test_ids_are_those_of_the_library(text, adds):
    tokenizer = shared()
    text = f"<|user|>{text} {text}".encode("utf-8", "replace").decode()
    expected = tokenizer.tokenizer.encode(text, add_special_tokens=adds).ids
    assert tokenizer.encode(text, adds) == expected


@given(st.data())
@settings(deadline=None)
def test_any_ids_decode_as_the_library_decodes_them(data):
    tokenizer = shared()
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    for skip in (True, False):
        expected = tokenizer.tokenizer.decode(ids, skip_special_tokens=skip)
        assert tokenizer.decode(ids, skip) == expected


CACHE = {}


def shared():
    if "tokenizer" not in CACHE:
        CACHE["tokenizer"] = GlmTokenizer(CAPITALS)
    return CACHE["tokenizer"]


def test_special_tokens_are_one_id_each(tokenizer):
    for token in ("<|user|>", "<|assistant|>", "<sop>"):
        ids = tokenizer.encode(token, add_special_tokens=False)
        assert ids == [tokenizer.id_of(token)]
        assert tokenizer.decode(ids) == ""
        assert tokenizer.decode(ids, skip_special_tokens=False) == token


def test_ids_without_a_token_show_nothing(tokenizer):
    begin, *rest = tokenizer.encode("東", add_special_tokens=False)
    unknown = [tokenizer.vocab_size, 2**31 - 1]
    assert tokenizer.decode([begin, *unknown, *rest]) == "東"
    assert tokenizer.tokenizer.decode([begin, *unknown, *rest]) == "東"
    assert unknown[0] not in tokenizer.bytes_by_id


def test_text_that_is_no_unicode_is_refused(tokenizer):
    with pytest.raises(BadInputError, match="not valid Unicode"):
        tokenizer.encode(b"caf\xff".decode("utf-8", "surrogateescape"))


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path):
    absent = "not a checkpoint: this folder has neither config.json nor tokenizer.json"
    with pytest.raises(BadInputError, match=f"^{tmp_path}: {absent}$"):
        GlmTokenizer(tmp_path)


def test_missing_file_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BadInputError, match=r"tokenizer\.json: no such file"):
        GlmTokenizer(tmp_path)


def test_broken_file_is_named(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(BadInputError, match=r"tokenizer\.json: not a valid tokenizer"):
        GlmTokenizer(tmp_path)


def test_tokenizer_without_bytes_is_refused(tmp_path):
    other = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    other.decoder = decoders.WordPiece()
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(BadInputError, match="expected a ByteLevel decoder, got WordPiece"):
        GlmTokenizer(tmp_path)


def test_configuration_must_be_an_object(tmp_path):
    assert tokenizer_config(tmp_path) == {}
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps([1]))
    with pytest.raises(BadInputError, match="expected a JSON object, got list"):
        tokenizer_config(tmp_path)
    path.write_text("{")
    with pytest.raises(BadInputError, match="invalid JSON"):
        tokenizer_config(tmp_path)


def test_tokenizer_needs_no_other_file(tmp_path, tokenizer):
    shutil.copy(CAPITALS / "tokenizer.json", tmp_path)
    assert GlmTokenizer(tmp_path).encode("France") == tokenizer.encode("France")


@pytest.mark.parametrize(
    "changes",
    [
        {"truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0}},
        {"padding": {"strategy": {"Fixed": 10**4}}},
    ],
    ids=["truncation", "padding"],
)
def test_a_text_is_read_whole_and_alone(tmp_path, tokenizer, changes):
    common = {"direction": "Right", "pad_to_multiple_of": None}
    common |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "x"}
    table = json.loads((CAPITALS / "tokenizer.json").read_text())
    stated = {name: {**common, **value} for name, value in changes.items()}
    (tmp_path / "tokenizer.json").write_text(json.dumps({**table, **stated}))
    assert GlmTokenizer(tmp_path).encode("The capital") == tokenizer.encode("The capital")


@pytest.mark.parametrize("tokens", [{}, {"": 0}])
def test_a_tokenizer_that_spells_nothing_is_refused(tmp_path, tokens):
    table = json.loads((CAPITALS / "tokenizer.json").read_text())
    table["model"] |= {"vocab": tokens, "merges": []}
    table["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(BadInputError, match="expected at least one token, got an empty vocabulary"):
        GlmTokenizer(tmp_path)


def test_a_tokenizer_that_makes_the_library_panic_is_one_line(tmp_path, capfd):
    """A prefix of subwords that is longer than a token is cut out of what is not there."""
    table = json.loads((CAPITALS / "tokenizer.json").read_text())
    table["model"]["continuing_subword_prefix"] = "ab"
    (tmp_path / "tokenizer.json").write_text(json.dumps(table))
    with pytest.raises(
        BadInputError, match=r"tokenizer\.json: not a valid tokenizer: slice index"
    ) as one:
        GlmTokenizer(tmp_path)
    assert len(str(one.value).splitlines()) == 1
    assert capfd.readouterr().err == ""
