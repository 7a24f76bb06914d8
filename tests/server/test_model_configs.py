"""What the server reads of a checkpoint's JSON files: each fault is one line at its field."""

import json

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.server.generation_config import (
    read_generation_config,
    sampling_defaults,
    warn_of_unapplied,
)

FAULTS = [
    ('{"temperature": "hot"}', "temperature: .*number, found 'hot'"),
    ('{"temperature": NaN}', "temperature: .*finite number, found nan"),
    ('{"temperature": 1e999}', "temperature: .*finite number, found inf"),
    ('{"temperature": -1}', "temperature: .*greater than or equal to 0, found -1"),
    ('{"temperature": %s}' % ("9" * 400), "temperature: .* and 320 more characters"),
    ('{"temperature": %s}' % ("9" * 5000), "invalid JSON: .*4300 digits"),
    ('{"top_p": -0.5}', "top_p: .*greater than or equal to 0, found -0.5"),
    ('{"top_p": [0.5]}', "top_p: .*number, found"),
    ('{"top_k": 1.5}', "top_k: .*integer, found 1.5"),
    ('{"top_k": %s}' % ("9" * 400), "top_k: .*less than or equal to 2147483647, found 9"),
    ('{"min_p": 1.5}', "min_p: .*less than or equal to 1, found 1.5"),
    ('{"min_p": "0.1"}', "min_p: .*number, found '0.1'"),
    ('{"repetition_penalty": 0}', "repetition_penalty: .*greater than 0, found 0"),
    ('{"repetition_penalty": true}', "repetition_penalty: .*number, found True"),
    ('{"do_sample": "false"}', "do_sample: .*boolean, found 'false'"),
    ("[]", "expected a JSON object, got list"),
    ("{", "invalid JSON"),
    ("[" * 100_000, "invalid JSON"),
    ("\ufffe", "invalid JSON"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[text[:40] for text, _ in FAULTS])
def test_nonsense_is_refused_at_its_field(tmp_path, text, message) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=message) as caught:
        read_generation_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value)) < len(str(path)) + 300


def test_what_is_not_stated_is_openais(tmp_path) -> None:
    path = tmp_path / "generation_config.json"
    nothing = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    assert sampling_defaults(read_generation_config(path)) == nothing
    stated = {"temperature": 0.6, "top_k": -1, "top_p": None, "min_p": 0.05, "other": []}
    stated["eos_token_id"] = [99]
    path.write_text(json.dumps(stated))
    found = read_generation_config(path)
    assert sampling_defaults(found) == {**nothing, "temperature": 0.6, "top_k": -1, "min_p": 0.05}
    path.write_text('{"do_sample": false, "temperature": 0.6}')
    found = read_generation_config(path)
    assert sampling_defaults(found) == {**nothing, "temperature": 0.0}


UNAPPLIED = {
    "bad_words_ids": [[5]],
    "begin_suppress_tokens": [220],
    "encoder_repetition_penalty": 1.1,
    "epsilon_cutoff": 0.0003,
    "forced_bos_token_id": 7,
    "forced_eos_token_id": 0,
    "guidance_scale": 1.5,
    "max_length": 200,
    "max_new_tokens": 512,
    "min_new_tokens": 4,
    "no_repeat_ngram_size": 3,
    "num_beams": 4,
    "num_return_sequences": 2,
    "penalty_alpha": 0.6,
    "presence_penalty": 1.5,
    "sequence_bias": [[[1], 2.0]],
    "stop_strings": ["end"],
    "suppress_tokens": [1, 2],
    "typical_p": 0.9,
}
NEUTRAL = {
    **dict.fromkeys(UNAPPLIED),
    "bad_words_ids": [],
    "do_sample": True,
    "guidance_scale": 1.0,
    "max_length": 20,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "pad_token_id": 3,
    "sequence_bias": {},
    "suppress_tokens": [],
    "transformers_version": "4.57.0",
    "typical_p": 1.0,
    "use_cache": True,
}


def unapplied_lines(path, stated) -> list[str]:
    path.write_text(json.dumps(stated))
    lines: list[str] = []
    warn_of_unapplied(path, read_generation_config(path), lines.append)
    return lines


def test_what_is_not_applied_is_named_in_one_line(tmp_path) -> None:
    path = tmp_path / "generation_config.json"
    applied = {"temperature": 0.6, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "eos_token_id": [3]}
    (line,) = unapplied_lines(path, {**applied, **UNAPPLIED})
    assert line == f"{path}: ignoring unsupported fields: {', '.join(sorted(UNAPPLIED))}"


def test_neutral_values_are_not_named(tmp_path) -> None:
    assert unapplied_lines(tmp_path / "generation_config.json", NEUTRAL) == []
    nowhere = tmp_path / "nowhere.json"
    warn_of_unapplied(nowhere, read_generation_config(nowhere), pytest.fail)
