"""Every spelling of RoPE in a config: the value that transformers takes, or a refusal."""

import json
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, inspect_checkpoint
from glm_engine.core.errors import EngineError, Status
from tests import groups
from tests.engine import tamper

OUTER, INNER = 1e6, 1e4
DEFAULT = {"rope_type": "default"}

TAKEN = {
    "plain": ({"rope_theta": OUTER, "partial_rotary_factor": 0.5}, (OUTER, 0.5)),
    "no factor": ({"rope_theta": OUTER}, (OUTER, 0.5)),
    "rope_scaling is null": ({"rope_theta": OUTER, "rope_scaling": None}, (OUTER, 0.5)),
    "rope_scaling is empty": ({"rope_theta": OUTER, "rope_scaling": {}}, (OUTER, 0.5)),
    "the inner theta of rope_scaling": (
        {"rope_theta": OUTER, "rope_scaling": {**DEFAULT, "rope_theta": INNER}},
        (INNER, 0.5),
    ),
    "the inner theta of rope_parameters": (
        {"rope_theta": OUTER, "rope_parameters": {**DEFAULT, "rope_theta": INNER}},
        (INNER, 0.5),
    ),
    "the inner factor": (
        {
            "rope_theta": OUTER,
            "partial_rotary_factor": 0.5,
            "rope_scaling": {**DEFAULT, "partial_rotary_factor": 0.25},
        },
        (OUTER, 0.25),
    ),
    "rope_scaling before rope_parameters": (
        {
            "rope_parameters": {**DEFAULT, "rope_theta": OUTER},
            "rope_scaling": {**DEFAULT, "rope_theta": INNER},
        },
        (INNER, 0.5),
    ),
    "rope_scaling is empty, rope_parameters is not": (
        {"rope_parameters": {**DEFAULT, "rope_theta": INNER}, "rope_scaling": {}},
        (INNER, 0.5),
    ),
    "no kind": ({"rope_parameters": {"rope_theta": INNER}}, (INNER, 0.5)),
    "the older name of the kind": (
        {"rope_parameters": {"type": "default", "rope_theta": INNER}},
        (INNER, 0.5),
    ),
    "rope_type before type": (
        {"rope_parameters": {**DEFAULT, "type": "linear", "factor": 4, "rope_theta": INNER}},
        (INNER, 0.5),
    ),
}

REFUSED = {
    "type without rope_type": (
        {"rope_theta": OUTER, "rope_parameters": {"type": "linear", "factor": 4}},
        'type is "linear"',
    ),
    "another kind in rope_scaling": (
        {"rope_theta": OUTER, "rope_scaling": {"rope_type": "yarn", "factor": 4}},
        'rope_type is "yarn"',
    ),
    "another kind in rope_scaling beside a sound one": (
        {
            "rope_parameters": {**DEFAULT, "rope_theta": OUTER},
            "rope_scaling": {"type": "dynamic", "factor": 2},
        },
        'type is "dynamic"',
    ),
    "a kind for each kind of layer": (
        {"rope_theta": OUTER, "rope_parameters": {"full_attention": {**DEFAULT}}},
        "layer type",
    ),
    "rope_scaling that is a word": ({"rope_theta": OUTER, "rope_scaling": "linear"}, "an object"),
    "an inner theta of null": (
        {"rope_theta": OUTER, "rope_parameters": {**DEFAULT, "rope_theta": None}},
        "rope_theta",
    ),
    "a factor of null": (
        {"rope_theta": OUTER, "partial_rotary_factor": None},
        "partial_rotary_factor",
    ),
}

KEYS = ("rope_theta", "partial_rotary_factor", "rope_scaling", "rope_parameters")


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return tamper.small_checkpoint(tmp_path_factory.mktemp("model"))


def spell(directory: Path, spelling: dict) -> dict:
    """Replaces what config.json says of RoPE; returns the whole of it."""
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config = {key: value for key, value in config.items() if key not in KEYS} | spelling
    path.write_text(json.dumps(config), encoding="utf-8")
    return config


def logits(directory: Path) -> np.ndarray:
    options = EngineOptions(directory, device="cpu", max_seq=64, max_batch=2, num_threads=1)
    with Engine(options) as engine:
        return engine.prefill(list(range(2, 34)))[1]


@pytest.mark.parametrize("name", TAKEN)
def test_a_spelling_means_its_plain_form(name, directory):
    spelling, (theta, factor) = TAKEN[name]
    spell(directory, {"rope_theta": theta, "partial_rotary_factor": factor})
    expected = logits(directory)
    spell(directory, spelling)
    assert np.array_equal(logits(directory), expected)


def test_theta_and_factor_change_the_logits(directory):
    found = []
    for theta, factor in [(OUTER, 0.5), (INNER, 0.5), (OUTER, 0.25)]:
        spell(directory, {"rope_theta": theta, "partial_rotary_factor": factor})
        found.append(logits(directory).tobytes())
    assert len(set(found)) == 3


@pytest.mark.parametrize("name", REFUSED)
def test_a_spelling_that_means_something_else_is_refused(name, directory):
    spelling, words = REFUSED[name]
    spell(directory, spelling)
    with pytest.raises(EngineError, match=words) as caught:
        inspect_checkpoint(directory)
    assert caught.value.status in {Status.GLM_INVALID_CHECKPOINT, Status.GLM_NOT_SUPPORTED}


@groups.needs("transformers")
@pytest.mark.parametrize("name", TAKEN)
def test_transformers_takes_the_same(name, directory):
    import transformers

    spelling, (theta, factor) = TAKEN[name]
    config = spell(directory, spelling)
    config.pop("quantization_config")
    found = transformers.Glm4MoeConfig(**config).rope_parameters
    assert (found["rope_type"], found["rope_theta"]) == ("default", theta)
    assert found["partial_rotary_factor"] == factor
