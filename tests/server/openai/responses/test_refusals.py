"""What /v1/responses refuses, and how it says so."""

import openai
import pytest

from tests.server.openai.responses.test_responses import ASKED, FORMAT, PATH, TOOL

TEXT_IS_MISSING = ("input.0.content.0.text", "required")


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "does not store responses"),
        ({"conversation": {"id": "c"}}, "conversation", "this server does not store responses"),
        ({"background": True}, "background", "none can be fetched later"),
        ({"prompt": {"id": "p"}}, "prompt", "this server does not store prompts"),
        ({"truncation": "auto"}, "truncation", "'disabled'"),
        ({"context_management": [{"type": "compaction"}]}, "context_management", "not supported"),
        ({"max_tokens": 5}, "max_tokens", "max_output_tokens"),
        ({"n": 2}, "n", "not supported"),
        ({"input": []}, "input", "at least 1"),
        ({"max_output_tokens": 0}, "max_output_tokens", "a number of at least 1, got 0"),
        ({"temperature": 3}, "temperature", "a number of at most 2, got 3"),
        ({"top_logprobs": 3}, "top_logprobs", "in include"),
        ({"user": "u" * 1025}, "user", "at most 1024 characters"),
        ({"prompt_cache_key": "k" * 1025}, "prompt_cache_key", "at most 1024 characters"),
        ({"safety_identifier": "s" * 1025}, "safety_identifier", "at most 1024 characters"),
        ({"include": ["everything"]}, "include.0", "message.output_text.logprobs"),
        ({"metadata": {"a": 1}}, "metadata.a", "string"),
        ({"tool_choice": "required"}, "tool_choice", "at least one tool"),
        ({"tools": [{"type": "web_search"}]}, "tools.0", "'web_search' is not supported"),
        ({"tools": [{"type": "file_search"}]}, "tools.0", "'file_search' is not supported"),
        (
            {"tools": [{"type": "code_interpreter"}]},
            "tools.0",
            "'code_interpreter' is not supported",
        ),
        ({"tools": [{"type": "computer_use_preview"}]}, "tools.0", "'computer_use_preview' is not"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools.0", "'mcp' is not supported"),
        ({"tools": [{"type": "custom", "name": "x"}]}, "tools.0", "'custom' is not supported"),
        ({"tools": [{"type": "function"}]}, "tools.0.name", "required"),
        ({"tool_choice": "maybe"}, "tool_choice", "'none', 'auto', 'required' or an object"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, *TEXT_IS_MISSING),
        (
            {"tools": [TOOL], "tool_choice": {"type": "web_search_preview"}},
            "tool_choice.type",
            "expected 'function' or 'allowed_tools', got 'web_search_preview'",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "rain"}},
            "tool_choice",
            "no tool is named 'rain'",
        ),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema", "a JSON schema"),
        (
            {"text": {"format": {**FORMAT["format"], "schema": {"type": "x"}}}},
            "text.format.schema",
            "text.format.schema",
        ),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "none"),
        (
            {"chat_template_kwargs": {"messages": []}},
            "chat_template_kwargs",
            "cannot set messages",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.content",
            "part 0 has type 'input_image'",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "input.0.call_id",
            "no earlier function_call has call_id 'c'",
        ),
    ],
)
def test_what_is_refused_is_named(client, fields, param, text):
    extra = {**ASKED, **fields}
    with pytest.raises(openai.BadRequestError, match="Error code: 400") as caught:
        client.responses.create(extra_body=extra)
    assert caught.value.param == param
    assert text in caught.value.message
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"model": "other"}, openai.NotFoundError, "model_not_found"),
        ({"input": "word " * 9000}, openai.BadRequestError, "context_length_exceeded"),
        ({"max_output_tokens": 4090}, openai.BadRequestError, "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_their_codes(client, fields, kind, code, stream):
    with pytest.raises(kind) as caught:
        client.responses.create(extra_body={**ASKED, **fields}, stream=stream)
    assert caught.value.code == code


def test_a_deadline_ends_a_whole_answer(client):
    fields = {**ASKED, "timeout_seconds": 0.05, "ignore_eos": True}
    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(extra_body=fields)
    assert (caught.value.status_code, caught.value.code) == (408, "deadline_exceeded")


def test_nothing_is_stored(client):
    for ask in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(
            openai.NotFoundError, match="this server does not store responses"
        ) as caught:
            ask("resp_1")
        assert caught.value.code == "response_not_found"


def test_bodies_that_are_no_requests(server):
    assert server.http.get(PATH).status_code == 405
    headers = {"content-type": "application/json"}
    answer = server.http.post(PATH, content=b'{"input"', headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert server.http.post(PATH, content=b"{}").status_code == 415
