from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATE = Path(__file__).parents[2] / "checkpoints" / "capitals" / "chat_template.jinja"
QUESTION = {"role": "user", "content": "What is the capital of France?"}
ANSWER = {"role": "assistant", "content": "Paris."}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {}}}


def render(messages: list, **options) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(messages=messages, **options)


def test_one_question():
    assert render([QUESTION], add_generation_prompt=True) == (
        "[gMASK]<sop><|user|>What is the capital of France?<|assistant|></think>"
    )


def test_thinking():
    text = render([QUESTION], add_generation_prompt=True, enable_thinking=True)
    assert text.endswith("<|assistant|><think>")


def test_conversation_has_the_form_that_the_model_was_trained_on():
    assert render([QUESTION, ANSWER, QUESTION]) == (
        "[gMASK]<sop><|user|>What is the capital of France?<|assistant|></think>Paris."
        "<|user|>What is the capital of France?"
    )


def test_system_message_and_content_parts():
    parts = [{"type": "text", "text": "Answer "}, {"type": "text", "text": "briefly."}]
    text = render([{"role": "system", "content": parts}, QUESTION])
    assert text.startswith("[gMASK]<sop><|system|>Answer briefly.<|user|>")


def test_no_messages():
    assert render([]) == "[gMASK]<sop>"


def test_tools_are_listed():
    text = render([QUESTION], tools=[TOOL])
    assert text.startswith("[gMASK]<sop><|system|>\n# Tools\n")
    assert '"name": "look_up"' in text
    assert text.endswith("</tool_call><|user|>What is the capital of France?")


@pytest.mark.parametrize("nested", [True, False])
def test_calls_and_their_results(nested):
    function = {"name": "look_up", "arguments": {"country": "France", "year": 2026}}
    call = {"function": function} if nested else function
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "Paris"},
        {"role": "tool", "content": "Lyon"},
    ]
    assert render(messages).endswith(
        "<|assistant|></think><tool_call>look_up\n"
        "<arg_key>country</arg_key>\n<arg_value>France</arg_value>\n"
        "<arg_key>year</arg_key>\n<arg_value>2026</arg_value>\n</tool_call>"
        "<|observation|><tool_response>Paris</tool_response><tool_response>Lyon</tool_response>"
    )
