"""Requests that are wrong: the status, OpenAI's form, the field's path, no trace."""

import json
import time

import openai
import pytest

from tests.server.raw import connect, enter, read_until
from tests.server.serving import MODEL, QUESTION

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
JSON = {"content-type": "application/json"}
LONG = [{"role": "user", "content": "word " * 5000}]


def refused(answer, status):
    """Check the form of a refusal and return its error."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.headers["x-request-id"]) == 32
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert "Traceback" not in answer.text
    assert "site-packages" not in answer.text
    return error


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", None),
        (b"{", "invalid_json"),
        (b'{"prompt": "\xff\xfe"}', "invalid_json"),
        (b'{"prompt": "\\ud800"}', "invalid_json"),
        (b'{"prompt": "x", "temperature": NaN}', "invalid_json"),
        (b'{"prompt": "x", "temperature": 1e999}', "invalid_json"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "json_too_complex"),
        (b'{"prompt": ' + b"[" * 60_000 + b"]" * 60_000 + b"}", "invalid_json"),
        (b'{"prompt": ' + b"[" * 200 + b"]" * 200 + b"}", "json_too_deep"),
        (b"[1, 2]", None),
        (b'"text"', None),
        (b"null", None),
    ],
)
def test_bodies_that_are_no_requests(server, body, code) -> None:
    error = refused(server.http.post(COMPLETIONS, content=body, headers=JSON), 400)
    assert error["type"] == "invalid_request_error"
    assert error["code"] == code


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [2048]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [10**30]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["x"] * 257}, "prompt"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 128, "prompt": ["a", "b", "c"]}, "n"),
        ({"prompt": ["x"] * 256, "n": 2}, "n"),
        ({"priority": 1}, "priority"),
        ({"priority": -1}, "priority"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"stop": [""]}, "stop.0"),
        ({"stop": ["x"] * 33}, "stop"),
        ({"stop_token_ids": [9999]}, "stop_token_ids"),
        ({"logprobs": 21}, "logprobs"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1"),
        ({"logit_bias": {"2048": 1}}, "logit_bias"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"stream": "yes"}, "stream"),
        ({"model": 3}, "model"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ],
)
def test_wrong_values_are_named(server, fields, param) -> None:
    answer = server.http.post(COMPLETIONS, json={"prompt": QUESTION, **fields})
    assert refused(answer, 400)["param"] == param


def test_harmless_fields_are_taken(server) -> None:
    harmless = {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"}
    neutral = {"best_of": 1, "suffix": "", "use_beam_search": False, "length_penalty": 1.0}
    nulls = dict.fromkeys(("stop", "logit_bias", "seed", "n", "temperature", "max_tokens"))
    answer = server.http.post(
        COMPLETIONS, json={"prompt": QUESTION, **harmless, **neutral, **nulls}
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "prompt", ["The capital of France is. " * 700, [300] * 4096, "x" * 4_000_000, [5] * 1_000_000]
)
def test_prompts_beyond_the_context(server, prompt) -> None:
    error = refused(server.http.post(COMPLETIONS, json={"prompt": prompt}), 400)
    assert error["code"] == "context_length_exceeded"
    assert "4096 tokens" in error["message"]


def test_both_numbers_are_said(client) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=4092)
    assert "4096" in caught.value.message
    assert "needs 4097 tokens (5 in the prompt, 4092 to generate)" in caught.value.message
    assert caught.value.param == "max_tokens"
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=4091, stop=".")


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (COMPLETIONS, {"prompt": QUESTION, "max_tokens": 4092}, "max_tokens"),
        (COMPLETIONS, {"prompt": [5] * 4096, "max_tokens": 4092}, "prompt"),
        (CHAT, {"max_tokens": 4092}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 4092, "max_tokens": 3}, "max_completion_tokens"),
        (CHAT, {"messages": LONG, "max_tokens": 4}, "messages"),
        ("/v1/responses", {"input": QUESTION, "max_output_tokens": 4092}, "max_output_tokens"),
        ("/v1/responses", {"input": LONG, "max_output_tokens": 4}, "input"),
    ],
)
def test_the_field_that_exceeds_the_context_is_named(server, path, fields, param) -> None:
    asked = {"messages": [{"role": "user", "content": QUESTION}]} if path == CHAT else {}
    error = refused(server.http.post(path, json=asked | fields), 400)
    assert (error["param"], error["code"]) == (param, "context_length_exceeded")


def test_other_content_types(server) -> None:
    body = json.dumps({"prompt": QUESTION}).encode()
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/xml"}):
        refused(server.http.post(COMPLETIONS, content=body, headers=headers), 415)
    charset = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.http.post(COMPLETIONS, content=body, headers=charset).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", COMPLETIONS, 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/models/other", 404),
        ("GET", "/page/../settings.py", 404),
        ("GET", "/page/%2e%2e%2fsettings.py", 404),
    ],
)
def test_routes_that_are_not_there(server, method, path, status) -> None:
    refused(server.http.request(method, path), status)


def test_a_deadline_ends_a_request(client, server) -> None:
    extra = {"ignore_eos": True, "timeout_seconds": 0.05}
    fields = {"model": MODEL, "prompt": QUESTION, "max_tokens": 4000, "extra_body": extra}
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(**fields)
    assert caught.value.status_code == 408
    assert caught.value.code == "deadline_exceeded"
    with pytest.raises(openai.APIError, match="timed out"):
        list(client.completions.create(stream=True, **fields))
    server.wait_until_idle()


def test_a_deadline_counts_from_the_arrival(server) -> None:
    body = json.dumps({"prompt": QUESTION, "timeout_seconds": 0.2}).encode()
    with connect(server) as connection:
        enter(connection, COMPLETIONS, len(body))
        time.sleep(0.3)
        connection.sendall(body)
        answer = read_until(connection, b"}}")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"deadline_exceeded" in answer


def test_the_description_is_there(server) -> None:
    described = server.http.get("/openapi.json").json()
    assert {COMPLETIONS, "/v1/chat/completions", "/v1/models", "/tokenize", "/detokenize"} <= set(
        described["paths"]
    )
    responses = described["paths"][COMPLETIONS]["post"]["responses"]
    assert {"200", "400", "401", "413", "429", "503"} <= set(responses)
    for path in described["paths"].values():
        for operation in path.values():
            assert "HTTPValidationError" not in str(operation["responses"])


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/healthz/", "/tokenize/"])
def test_no_page_loads_scripts_of_others_and_no_path_is_redirected(server, path) -> None:
    refused(server.http.get(path), 404)
