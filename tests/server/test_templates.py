"""Chat templates that fail or never end, over HTTP: 400 in one line, and the server goes on."""

import os

import pytest

from glm_engine.options import CAPITALS
from tests.server.serving import QUESTION

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
    assert "spells no calls" in refused.json()["error"]["message"]
