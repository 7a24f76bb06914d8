"""A request ends at the end tokens of config.json and of generation_config.json alike."""

import json

import pytest

from glm_engine.core.engine import Request, inspect_checkpoint
from glm_engine.core.errors import EngineError, Status
from tests.engine.running import open_engine, run_requests
from tools.checkpoint.random_model import small_config, write_random_model

VOCAB_SIZE = 128
PROMPT = [5, 9, 2]
NUM_TOKENS = 24
GENERATION = "generation_config.json"


def write_model(folder, ends, generation=None):
    """Write the same weights each time, with these ends and the text of the other file."""
    config = small_config(fp8=False, eos_token_id=ends, vocab_size=VOCAB_SIZE)
    write_random_model(folder, {**config, "initializer_range": 0.3}, seed=11)
    if generation is not None:
        (folder / GENERATION).write_text(generation)
    return folder


def answer_of(folder, **fields):
    with open_engine(folder) as engine:
        [result] = run_requests(engine, [Request(PROMPT, max_tokens=NUM_TOKENS, **fields)])
        return result, engine.info()


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """The greedy tokens of the model without ends."""
    result, info = answer_of(write_model(tmp_path_factory.mktemp("endless"), []))
    assert (result.finish_reason, info["eos_tokens"]) == ("length", [])
    assert len(set(result.tokens)) > 3
    return result.tokens


def unused(tokens):
    return min(set(range(VOCAB_SIZE)) - set(tokens))


def place_of_a_new_token(tokens):
    """Return the last place at which a token comes that has not come before."""
    return max(tokens.index(one) for one in set(tokens))


@pytest.mark.parametrize("is_listed", [True, False])
def test_ends_of_either_file_end_an_answer(is_listed, endless, tmp_path) -> None:
    at, other = place_of_a_new_token(endless), unused(endless)
    token = endless[at]
    stated = json.dumps({"eos_token_id": [token, other] if is_listed else token})
    result, info = answer_of(write_model(tmp_path, [other], stated))
    assert result.finish_reason == "stop_token"
    assert result.tokens == endless[: at + 1]
    assert info["eos_tokens"] == [other, token]


@pytest.mark.parametrize(
    "generation", [None, "{}", '{"eos_token_id": null}', '{"eos_token_id": []}']
)
def test_ends_of_config_hold_where_the_other_file_states_none(generation, endless, tmp_path):
    at = place_of_a_new_token(endless)
    result, info = answer_of(write_model(tmp_path, [endless[at]], generation))
    assert result.tokens == endless[: at + 1]
    assert info["eos_tokens"] == [endless[at]]


def test_no_end_is_taken_where_the_request_ignores_them(endless, tmp_path) -> None:
    stated = json.dumps({"eos_token_id": endless[0]})
    result, _ = answer_of(write_model(tmp_path, [endless[1]], stated), ignore_eos=True)
    assert (result.finish_reason, result.tokens) == ("length", endless)


def test_the_two_files_may_list_the_same_sixteen(tmp_path) -> None:
    ends = list(range(100, 116))
    _, info = answer_of(write_model(tmp_path, ends, json.dumps({"eos_token_id": ends[::-1]})))
    assert info["eos_tokens"] == ends


@pytest.mark.parametrize(
    ("generation", "message"),
    [
        ('{"eos_token_id": 128}', "eos_token_id is 128; expected 0 to 127"),
        ('{"eos_token_id": [1, -2]}', "eos_token_id is -2; expected 0 to 127"),
        ('{"eos_token_id": "end"}', "eos_token_id: expected an integer, got string end"),
        (json.dumps({"eos_token_id": list(range(17))}), "lists more than the maximum of 16 tokens"),
        ("[]", "expected an object"),
        ("{", "generation_config.json"),
    ],
)
def test_nonsense_is_refused_with_the_name_of_the_file(generation, message, tmp_path) -> None:
    folder = write_model(tmp_path, [0], generation)
    for read in (answer_of, inspect_checkpoint):
        with pytest.raises(EngineError, match=GENERATION) as caught:
            read(folder)
        assert message in str(caught.value)
        assert caught.value.status in (Status.GLM_INVALID_CHECKPOINT, Status.GLM_NOT_SUPPORTED)
