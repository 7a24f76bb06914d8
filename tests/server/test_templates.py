"""Chat templates that fail or never end, over HTTP: 400 in one line, and the server goes on."""

import json
import os

import pytest

from glm_engine.cli.options import CAPITALS
from tests.server.serving import QUESTION, ServerProcess

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NESTED = "{% for a in range(99999) %}" * 4 + "x" + "{% endfor %}" * 4
TEMPLATE = (
    "{% if messages[0].content == 'loop' %}" + NESTED + "{% endif %}"
    "{% if messages[0].content == 'grow' %}{{ 'x' * (1024 ** 3) }}{% endif %}"
    "{% if messages[0].content == 'divide' %}{{ 1 / 0 }}{% endif %}"
    "{% if messages[-1].role == 'assistant' %}{{ 1 / 0 }}{% endif %}"
    "{% if messages | length > 1 %}{{ raise_exception('one message\nat a time') }}{% endif %}"
    "The capital of France is"
)


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory):
    running = ServerProcess(tmp_path_factory.mktemp("serve"))
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


@pytest.fixture
def server(start_server, tmp_path):
    """A server on capitals, whose template loops, grows, divides by zero or raises when told to."""
    folder = tmp_path / "model"
    folder.mkdir()
    for path in CAPITALS.iterdir():
        if path.name != "chat_template.jinja":
            os.symlink(path, folder / path.name)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return start_server("--model", folder)


def asked(server, *contents, **fields):
    messages = [{"role": "user", "content": one} for one in contents]
    return server.http.post(CHAT, json={"messages": messages, "max_tokens": 3, **fields})


def refusal_of(answer):
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("template_error", "messages")
    assert len(error["message"].splitlines()) == 1
    return error["message"]


def test_faults_of_a_template_are_400_and_the_server_goes_on(server) -> None:
    assert "cannot render these messages: one message at a time" in refusal_of(
        asked(server, "", "")
    )
    assert "ZeroDivisionError" in refusal_of(asked(server, "divide"))
    for endless in ("loop", "grow"):
        assert "takes more than 2 s or 512 MiB" in refusal_of(asked(server, endless))
    assert asked(server, "fine").status_code == 200
    assert server.http.post(COMPLETIONS, json={"prompt": QUESTION}).status_code == 200


def test_a_template_that_fails_leaves_guided_requests_as_they_are(server) -> None:
    """The spelling of calls is read from an assistant's turn, for which this template fails."""
    answer = asked(server, "fine", guided_choice=["Paris", "Rome"])
    assert answer.status_code == 200, answer.text
    tools = [{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}]
    refused = asked(server, "fine", tools=tools, tool_choice="required")
    assert refused.status_code == 400
    assert "cannot enforce tool calls" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/tokenize"])
@pytest.mark.parametrize("name", ["self", "messages", "tools", "add_generation_prompt"])
def test_names_that_are_not_the_client_s_to_set_are_named(whole_server, path, name) -> None:
    asked_for = "input" if path == "/v1/responses" else "messages"
    fields = {asked_for: [{"role": "user", "content": "x"}], "chat_template_kwargs": {name: 1}}
    answer = whole_server.http.post(path, json=fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["message"] == f"chat_template_kwargs cannot set {name}"
    assert error["param"] == "chat_template_kwargs"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("caller", 1),
        ("args", [1]),
        ("kwargs", {"a": 1}),
        ("context", None),
        ("name", "x"),
        ("source", {}),
        ("loop", 1),
        ("varargs", 1),
        ("bos_token", 7),
        ("", 1),
        ("a b", 1),
        ("\u00e9\u0000", 1),
        ("__class__", "x"),
        ("x" * 60_000, 1),
        ("deep", json.loads("[" * 50 + "]" * 50)),
        ("long", "x" * 1_000_000),
        ("number", 10**300),
    ],
)
def test_any_other_name_and_value_is_the_template_s(whole_server, name, value) -> None:
    fields = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    answer = whole_server.http.post(CHAT, json={**fields, "chat_template_kwargs": {name: value}})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("name", ["range", "namespace", "raise_exception", "enable_thinking"])
def test_a_template_that_a_variable_breaks_is_400_or_goes_on(whole_server, name) -> None:
    fields = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    answer = whole_server.http.post(
        CHAT, json={**fields, "chat_template_kwargs": {name: {"x": [1]}}}
    )
    assert answer.status_code == 200 or refusal_of(answer)
