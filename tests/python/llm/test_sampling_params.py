"""`SamplingParams`: what it refuses, and that its bounds are the server's."""

import pytest

from glm_engine import BadInputError, SamplingParams, StructuredOutputsParams

WRONG = {
    "n": [0, 129, 1.5, True, "2"],
    "temperature": [-0.1, 2.1, float("nan"), "warm", False],
    "top_p": [-1, 1.01],
    "top_k": [-2, 0.5],
    "min_p": [2],
    "repetition_penalty": [0, 101],
    "frequency_penalty": [-2.1],
    "presence_penalty": [3],
    "seed": [2**64, -(2**63) - 1],
    "stop": [[""], 5, ["x"] * 33, ["x" * 1025]],
    "stop_token_ids": [[-1], 3],
    "bad_words": [[""], "x"],
    "allowed_token_ids": [[]],
    "logit_bias": [{"x": 1}, {5: 101}, [5]],
    "max_tokens": [0],
    "min_tokens": [-1],
    "logprobs": [21],
    "prompt_logprobs": [-1],
    "thinking_token_budget": [-2],
    "priority": [2**31],
}
SHARED = WRONG.keys() - {"max_tokens", "logit_bias", "thinking_token_budget"}


@pytest.mark.parametrize(("name", "value"), [(name, one) for name in WRONG for one in WRONG[name]])
def test_a_wrong_value_is_named_with_its_place(name, value):
    with pytest.raises(BadInputError) as refused:
        SamplingParams(**{name: value})
    assert str(refused.value).startswith(f"SamplingParams.{name}")
    assert "expected" in str(refused.value)
    assert "got" in str(refused.value)


@pytest.mark.parametrize(("name", "value"), [(name, WRONG[name][0]) for name in sorted(SHARED)])
def test_the_server_refuses_it_too(server, name, value):
    body = {"prompt": "x", "max_tokens": 1, name: value}
    assert server.http.post("/v1/completions", json=body).status_code == 400


def test_an_unknown_field_is_named_with_the_nearest():
    with pytest.raises(BadInputError) as refused:
        SamplingParams(temprature=1)
    assert str(refused.value) == (
        "SamplingParams: unknown field 'temprature'; did you mean 'temperature'?"
    )
    with pytest.raises(BadInputError, match=r"unknown field 'x'; known: allowed_token_ids, "):
        SamplingParams(x=1)


def test_none_is_refused_where_it_means_nothing():
    with pytest.raises(BadInputError, match=r"SamplingParams.n: expected a value, got None"):
        SamplingParams(n=None)


def test_least_and_most_tokens():
    with pytest.raises(
        BadInputError, match=r"min_tokens: expected at most max_tokens \(3\), got 4"
    ):
        SamplingParams(min_tokens=4, max_tokens=3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "expected one of json, json_object, regex, choice, grammar, got none"),
        ({"regex": "a", "json_object": True}, "got json_object and regex"),
        ({"json": 5}, "StructuredOutputsParams.json: expected a JSON schema"),
        ({"choice": []}, "StructuredOutputsParams.choice: expected 1 to 4096 items, got 0"),
        ({"jsn": "{}"}, "StructuredOutputsParams: unknown field 'jsn'; did you mean 'json'?"),
    ],
)
def test_what_a_form_refuses(fields, message):
    with pytest.raises(BadInputError) as refused:
        StructuredOutputsParams(**fields)
    assert message in str(refused.value)
    with pytest.raises(BadInputError) as refused:
        SamplingParams(structured_outputs=fields)
    assert message in str(refused.value)
