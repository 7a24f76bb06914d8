"""The messages of a conversation, kept, taken back and written to files."""

import json

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.terminal.history import Conversation, read_tools

QUESTION = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
CALLS = [
    {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in "fg"
]
CALLING = {"role": "assistant", "content": None, "tool_calls": CALLS}
BAD_FILES = [
    ("[]", "expected a JSON object, got list"),
    ("{", "invalid JSON"),
    ("{}", "messages: "),
    ('{"messages": []}', "messages: "),
    ('{"messages": [{"role": "user", "content": 5}]}', "messages: 0.content"),
    ('{"messages": [{"role": "king", "content": "a"}]}', "messages: 0.role"),
]


def result(name):
    return {"role": "tool", "tool_call_id": name, "content": name}


def test_the_system_message_is_first_and_survives():
    conversation = Conversation("be brief")
    conversation.keep([*conversation.messages, QUESTION], ANSWER)
    conversation.set_system("be long")
    system = {"role": "system", "content": "be long"}
    assert conversation.messages == [system, QUESTION, ANSWER]
    conversation.clear()
    assert conversation.messages == [system]
    conversation.set_system(None)
    assert conversation.messages == []


def test_what_was_answered_can_be_asked_again():
    conversation = Conversation()
    with pytest.raises(BadInputError, match="no answer to retry yet"):
        conversation.asked_again()
    conversation.keep([QUESTION], ANSWER)
    assert conversation.asked_again() == [QUESTION]
    assert conversation.messages == [QUESTION, ANSWER]


def test_open_calls_are_those_without_results():
    conversation = Conversation()
    assert conversation.open_calls() == []
    conversation.keep([QUESTION], CALLING)
    assert conversation.open_calls() == CALLS
    conversation.messages.append(result("f"))
    assert conversation.open_calls() == CALLS[1:]
    conversation.messages.append(result("g"))
    assert conversation.open_calls() == []
    conversation.keep(conversation.messages, ANSWER)
    assert conversation.open_calls() == []


def test_a_file_gives_back_what_was_saved(tmp_path):
    path = tmp_path / "talk.json"
    saved = Conversation("é")
    thought = {**ANSWER, "reasoning_content": "hm"}
    saved.keep([*saved.messages, QUESTION, {**CALLING, "content": ""}, result("f")], thought)
    saved.save(path)
    loaded = Conversation("another")
    loaded.unanswered = QUESTION
    loaded.load(path)
    assert loaded.messages == saved.messages
    assert loaded.unanswered is None


@pytest.mark.parametrize(("content", "fault"), BAD_FILES)
def test_a_file_that_is_refused_changes_nothing(tmp_path, content, fault):
    path = tmp_path / "talk.json"
    path.write_text(content)
    conversation = Conversation()
    conversation.keep([QUESTION], ANSWER)
    with pytest.raises(BadInputError, match=fault) as caught:
        conversation.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert conversation.messages == [QUESTION, ANSWER]


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(BadInputError, match="cannot be read"):
        Conversation().load(tmp_path / "absent")
    with pytest.raises(BadInputError, match="cannot be written"):
        Conversation().save(tmp_path / "absent" / "talk.json")


def test_tools_are_checked(tmp_path):
    path = tmp_path / "tools.json"
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    path.write_text(json.dumps([tool]))
    assert read_tools(path) == (tool,)
    path.write_text(json.dumps([{"type": "function"}]))
    with pytest.raises(BadInputError, match=r"0\.function"):
        read_tools(path)
    path.write_text("{}")
    with pytest.raises(BadInputError) as caught:
        read_tools(path)
    assert str(caught.value) == f"{path}: expected a list, got an object"
