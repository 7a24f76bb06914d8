"""Results of tools through a template that writes what it is given, as GLM-4.6's and 4.7's do."""

import pytest

from glm_engine.server.anthropic import messages as anthropic
from glm_engine.server.anthropic.message_fields import CountRequest
from glm_engine.server.openai.chat_messages import Message
from glm_engine.server.openai.chat_messages import template_messages as chat_messages
from glm_engine.server.openai.responses import responses
from glm_engine.server.openai.responses.response_fields import ResponsesRequest
from glm_engine.text.template import ChatTemplate

SOURCE = """\
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if m.content is string %}
{{- '<tool_response>' ~ m.content ~ '</tool_response>' }}
{%- else %}
{%- for one in m.content %}
{{- '<tool_response>' ~ one ~ '</tool_response>' }}
{%- endfor %}
{%- endif %}
{%- endif %}
{%- endfor %}"""
TEXTS = ["4 °C, ", "rain", " <b>'\n"]
EXPECTED = f"<tool_response>{''.join(TEXTS)}</tool_response>"


@pytest.fixture
def template(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text(SOURCE)
    return ChatTemplate(tmp_path)


def parts(kind):
    return [{"type": kind, "text": text} for text in TEXTS]


def of_chat(content):
    function = {"name": "weather", "arguments": "{}"}
    call = {"id": "a", "type": "function", "function": function}
    rows = [
        {"role": "user", "content": parts("text")},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]
    return chat_messages([Message(**row) for row in rows])


def of_old_chat(content):
    function = {"name": "weather", "arguments": "{}"}
    rows = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "function_call": function},
        {"role": "function", "name": "weather", "content": content},
    ]
    return chat_messages([Message(**row) for row in rows])


def of_responses(content):
    asked = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "a", "output": content}
    return responses.template_messages(ResponsesRequest(input=[asked, told]))


def of_anthropic(content):
    asked = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
    told = {"type": "tool_result", "tool_use_id": "a", "content": content}
    rows = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": [asked]},
        {"role": "user", "content": [told]},
    ]
    return anthropic.template_messages(CountRequest(model="m", messages=rows))


@pytest.mark.parametrize(
    ("messages_of", "kind"),
    [
        (of_chat, "text"),
        (of_old_chat, "text"),
        (of_responses, "input_text"),
        (of_anthropic, "text"),
    ],
)
def test_a_result_in_parts_reads_as_its_text(template, messages_of, kind) -> None:
    assert template.render(messages_of(parts(kind))) == EXPECTED
    assert template.render(messages_of("".join(TEXTS))) == EXPECTED
    assert template.render(messages_of([])) == "<tool_response></tool_response>"


def test_no_message_of_a_chat_reaches_the_template_in_parts() -> None:
    asked, call, result = of_chat(parts("text"))
    assert (asked["content"], call["content"], result["content"]) == (
        "".join(TEXTS),
        "",
        "".join(TEXTS),
    )
