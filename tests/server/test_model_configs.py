"""What the server reads of a checkpoint's JSON files: each fault is one line at its field."""

import json

import pytest

from glm_engine.errors import BadInputError
from glm_engine.server.model_configs import read_generation_config, sampling_defaults

FAULTS = [
    ('{"temperature": "hot"}', "temperature: .*number, found 'hot'"),
    ('{"temperature": NaN}', "temperature: .*finite number, found nan"),
    ('{"temperature": 1e999}', "temperature: .*finite number, found inf"),
    ('{"temperature": -1}', "temperature: .*greater than or equal to 0, found -1"),
    ('{"temperature": %s}' % ("9" * 400), "temperature: .* and 320 characters more"),
    ('{"temperature": %s}' % ("9" * 5000), "not JSON: .*4300 digits"),
    ('{"top_p": 0}', "top_p: .*greater than 0, found 0"),
    ('{"top_p": [0.5]}', "top_p: .*number, found"),
    ('{"top_k": 1.5}', "top_k: .*integer, found 1.5"),
    ('{"top_k": %s}' % ("9" * 400), "top_k: .*less than or equal to 2147483647, found 9"),
    ('{"repetition_penalty": 0}', "repetition_penalty: .*greater than 0, found 0"),
    ('{"repetition_penalty": true}', "repetition_penalty: .*number, found True"),
    ('{"do_sample": "false"}', "do_sample: .*boolean, found 'false'"),
    ("[]", "expected an object, found list"),
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("\ufffe", "not JSON"),
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
    nothing = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}
    assert sampling_defaults(read_generation_config(path)) == nothing
    stated = {"temperature": 0.6, "top_k": -1, "top_p": None, "other": [], "eos_token_id": [99]}
    path.write_text(json.dumps(stated))
    found = read_generation_config(path)
    assert sampling_defaults(found) == {**nothing, "temperature": 0.6, "top_k": -1}
    path.write_text('{"do_sample": false, "temperature": 0.6}')
    found = read_generation_config(path)
    assert sampling_defaults(found) == {**nothing, "temperature": 0.0}
