"""Values of the wrong kind: the message says what the field takes and what came."""

import pydantic
import pytest
from fastapi.exceptions import RequestValidationError

from glm_engine.server.anthropic.message_fields import MessagesRequest
from glm_engine.server.fields import of_validation
from glm_engine.server.openai.chat_completions import ChatRequest
from glm_engine.server.openai.completions import CompletionRequest
from glm_engine.server.openai.responses.response_fields import ResponsesRequest

ASKED = [{"role": "user", "content": "Hi"}]
FUNCTION = {"type": "function"}
BASES = {
    ChatRequest: {"messages": ASKED},
    CompletionRequest: {"prompt": "Hi"},
    ResponsesRequest: {"input": "Hi"},
    MessagesRequest: {"messages": ASKED, "max_tokens": 5},
}


def refusal(model, **fields):
    """The error of a request with these fields, as a client gets it."""
    body = BASES[model] | fields
    with pytest.raises(pydantic.ValidationError) as caught:
        model.model_validate(body)
    found = [one | {"loc": ("body", *one["loc"])} for one in caught.value.errors()]
    return of_validation(RequestValidationError(found, body=body))


def said(content):
    return [{"role": "user", "content": content}]


def called(arguments):
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    return [{"role": "assistant", "content": "", "tool_calls": calls}]


TEXTS = "expected a string or a list of strings, got"
PROMPTS = (
    "expected a string, a list of strings, a list of token ids, or a list of token id lists, got"
)
CHOICES = "expected 'none', 'auto', 'required' or an object, got"


@pytest.mark.parametrize(
    ("model", "fields", "param", "reason"),
    [
        (ChatRequest, {"stop": 5}, "stop", f"{TEXTS} 5"),
        (CompletionRequest, {"stop": {"a": 1}}, "stop", f"{TEXTS} an object"),
        (ResponsesRequest, {"stop": True}, "stop", f"{TEXTS} true"),
        (ChatRequest, {"stop": [5]}, "stop.0", "expected a string, got 5"),
        (
            ChatRequest,
            {"logit_bias": [1]},
            "logit_bias",
            "expected an object that maps token ids to numbers, got a list",
        ),
        (ChatRequest, {"tool_choice": "any"}, "tool_choice", f"{CHOICES} 'any'"),
        (ResponsesRequest, {"tool_choice": 5}, "tool_choice", f"{CHOICES} 5"),
        (
            ChatRequest,
            {"tool_choice": {"type": "tool"}},
            "tool_choice.type",
            "expected 'function' or 'allowed_tools', got 'tool'",
        ),
        (ResponsesRequest, {"tool_choice": {}}, "tool_choice.type", "Field required"),
        (
            ResponsesRequest,
            {"tool_choice": FUNCTION},
            "tool_choice.name",
            "Field required",
        ),
        (ChatRequest, {"response_format": 5}, "response_format", "expected an object, got 5"),
        (ChatRequest, {"guided_json": 5}, "guided_json", "expected an object or a string, got 5"),
        (
            ChatRequest,
            {"messages": said(5)},
            "messages.0.content",
            "expected a string or a list of parts, got 5",
        ),
        (
            ChatRequest,
            {"messages": said(["Hi"])},
            "messages.0.content",
            "part 0: expected an object, got 'Hi'",
        ),
        (
            ChatRequest,
            {"messages": said([{"text": "Hi"}])},
            "messages.0.content",
            "part 0 has no type; supported types: text, refusal",
        ),
        (
            ChatRequest,
            {"messages": called(5)},
            "messages.0.tool_calls.0.function.arguments",
            "expected a string or an object, got 5",
        ),
        (CompletionRequest, {"prompt": None}, "prompt", f"{PROMPTS} null"),
        (ResponsesRequest, {"input": 5}, "input", "expected a string or a list of items, got 5"),
        (
            ResponsesRequest,
            {"input": said(5)},
            "input.0.content",
            "expected a string or a list of parts, got 5",
        ),
        (
            MessagesRequest,
            {"messages": said(5)},
            "messages.0.content",
            "expected a string or a list of blocks, got 5",
        ),
        (
            MessagesRequest,
            {"system": {}},
            "system",
            "expected a string or a list of blocks, got an object",
        ),
        (
            MessagesRequest,
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages.0.role",
            "expected 'user', 'assistant' or 'system', got 'tool'",
        ),
        (MessagesRequest, {"tool_choice": "auto"}, "tool_choice", "expected an object, got 'auto'"),
        (MessagesRequest, {"stop_sequences": 5}, "stop_sequences", "expected a list, got 5"),
        (ChatRequest, {"n": "1"}, "n", "expected a whole number, got '1'"),
        (ChatRequest, {"n": 0}, "n", "expected a number of at least 1, got 0"),
        (ChatRequest, {"top_p": 2.5}, "top_p", "expected a number of at most 1, got 2.5"),
        (ChatRequest, {"stream": "yes"}, "stream", "expected true or false, got 'yes'"),
        (ChatRequest, {"messages": []}, "messages", "expected at least 1 item, got 0"),
        (ChatRequest, {"stop": ["x"] * 33}, "stop", "expected at most 32 items, got 33"),
        (ChatRequest, {"stop": [""]}, "stop.0", "expected at least 1 character, got 0"),
    ],
)
def test_a_wrong_kind_is_told_with_what_the_field_takes(model, fields, param, reason) -> None:
    error = refusal(model, **fields)
    assert (error.detail, error.param) == (f"{param}: {reason}", param)


def test_kinds_of_one_field_are_not_counted_as_more_errors() -> None:
    error = refusal(ChatRequest, n="1", tool_choice=5, top_p="1")
    assert error.detail == "n: expected a whole number, got '1' (and 2 more)"


def test_a_long_text_is_cut() -> None:
    assert len(refusal(ChatRequest, messages="word " * 9000).detail) < 100


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": ASKED, "stop": 5}),
        ("/v1/completions", {"prompt": "Hi", "stop": 5}),
        ("/v1/responses", {"input": "Hi", "stop": 5}),
    ],
)
def test_clients_of_openai_get_it(server, path, body) -> None:
    error = server.http.post(path, json=body).json()["error"]
    assert error["message"] == f"stop: {TEXTS} 5"
    assert error["param"] == "stop"


def test_clients_of_anthropic_get_it(server) -> None:
    body = {"messages": ASKED, "max_tokens": 5, "system": 5}
    error = server.http.post("/v1/messages", json=body).json()["error"]
    assert error["message"] == "system: expected a string or a list of blocks, got 5"
