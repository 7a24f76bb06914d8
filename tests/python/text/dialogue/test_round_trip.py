"""Turns rendered as the checkpoints' templates spell them, and parsed back."""

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from glm_engine.cli.options import CAPITALS
from glm_engine.text.dialogue import Opening, opening_of
from glm_engine.text.template import ChatTemplate
from tests.python.text.dialogue.folding import folded, parsed

QUESTION = {"role": "user", "content": "What is <think>?"}
TAGS = ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<tool_call>", "</tool_call>"]
PIECES = st.text(max_size=8) | st.sampled_from(
    [*TAGS, "<", "</", "</arg_val", "\n", " ", '"', "\\"]
)
ANY_TEXT = st.lists(PIECES, max_size=6).map("".join)
PROSE = ANY_TEXT.map(lambda text: re.sub("<tool_call>|</?think>", "", text).strip()).filter(
    lambda text: not re.search("<tool_call>|</?think>", text)
)
A_TAG = re.compile(r"</?(?:tool_call|arg_key|arg_value)>|</?(?:tool_c|arg_[kv])[a-z_]*\s*\Z")
VALUE_TEXT = KEYS = ANY_TEXT.filter(lambda text: not A_TAG.search(text))
NAMES = st.text("abcXYZ019_.:/-", min_size=1, max_size=64)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)
VALUES = VALUE_TEXT | JSON.filter(lambda value: not A_TAG.search(json.dumps(value)))
TEMPLATE = ChatTemplate(CAPITALS)
CALLS = st.lists(st.tuples(NAMES, st.dictionaries(KEYS, VALUES, max_size=4)), max_size=3)
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}


def tools_for(calls):
    """Declare each function; the last call of a name decides, so names are made unique."""
    return [
        {"type": "function", "function": {"name": name, "parameters": parameters(arguments)}}
        for name, arguments in calls
    ]


def parameters(arguments):
    names = {**JSON_TYPES, dict: "object", type(None): "null"}
    return {"properties": {key: {"type": names[type(v)]} for key, v in arguments.items()}}


def uniquely_named(calls):
    return [(f"{name}{at}", arguments) for at, (name, arguments) in enumerate(calls)]


def text_of(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def glm_4_5(reasoning, content, calls):
    """GLM-4.5 and 4.6: the prompt ends in <|assistant|>; parts stand on lines of their own."""
    text = f"\n<think>{reasoning}</think>" + (f"\n{content}" if content else "")
    for name, arguments in calls:
        text += f"\n<tool_call>{name}\n"
        for key, value in arguments.items():
            text += f"<arg_key>{key}</arg_key>\n<arg_value>{text_of(value)}</arg_value>\n"
        text += "</tool_call>"
    return "<|assistant|>", text


def glm_4_7(reasoning, content, calls):
    """GLM-4.7: the prompt opens the thought; nothing stands between parts."""
    text = f"{reasoning}</think>{content}"
    for name, arguments in calls:
        text += f"<tool_call>{name}"
        for key, value in arguments.items():
            text += f"<arg_key>{key}</arg_key><arg_value>{text_of(value)}</arg_value>"
        text += "</tool_call>"
    return "<|assistant|><think>", text


def capitals(_reasoning, content, calls):
    """The template of the checkpoint of this repository, which closes the thought."""
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"function": {"name": n, "arguments": a}} for n, a in calls],
    }
    text = TEMPLATE.render([QUESTION, message], add_generation_prompt=False)
    opening = "<|assistant|></think>"
    prompt, _, answer = text.partition(opening)
    return prompt + opening, answer


SPELLINGS = st.sampled_from([glm_4_5, glm_4_7, capitals])


@settings(max_examples=150, deadline=None)
@given(SPELLINGS, PROSE, PROSE, CALLS, st.integers(1, 40))
def test_what_is_rendered_is_parsed_back(spelling, reasoning, content, calls, size):
    calls = uniquely_named(calls)
    prompt, text = spelling(reasoning, content, calls)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    parts = folded(parsed(pieces, opening_of(prompt) is Opening.THOUGHT, tools=tools_for(calls)))
    thought = [["reasoning", reasoning]] if reasoning and spelling is not capitals else []
    answer = [["content", content]] if content else []
    assert parts[: len(thought) + len(answer)] == thought + answer
    found = parts[len(thought) + len(answer) :]
    assert [(p[0], p[1], json.loads(p[2]), p[3]) for p in found] == [
        ("call", name, arguments, True) for name, arguments in calls
    ]
