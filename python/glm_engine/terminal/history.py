"""The messages of a conversation, in the form of OpenAI's interface, and as a file."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_json, read_object, write_whole
from glm_engine.core.layout import StrPath
from glm_engine.server.fields import plain_message
from glm_engine.server.openai.chat_messages import Messages, Tools

MESSAGES, TOOLS = TypeAdapter(Messages), TypeAdapter(Tools)
ASSISTANT, SYSTEM, TOOL = "assistant", "system", "tool"
Message = dict[str, Any]
Checked = TypeVar("Checked")


def checked(adapter: TypeAdapter[Checked], value: object, source: StrPath) -> Checked:
    """Return what pydantic makes of a value; BadInputError names the first field it refuses."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(map(str, found["loc"]))
        where = f"{source}: {place}" if place else source
        raise BadInputError(f"{where}: {plain_message(found)}") from error


def plain(models: Iterable[BaseModel]) -> list[dict[str, Any]]:
    return [model.model_dump(exclude_none=True) for model in models]


def read_tools(path: StrPath) -> tuple[dict[str, Any], ...]:
    """Return the tools of a file that holds OpenAI's list of them."""
    tools = checked(TOOLS, read_json(path), path)
    return tuple(plain(tools))


class Conversation:
    """Messages so far; `unanswered` is the last one of the user where nothing came back."""

    def __init__(self, system: str | None = None) -> None:
        self.messages: list[Message] = []
        self.unanswered: Message | None = None
        self.set_system(system)

    @property
    def system(self) -> str | None:
        """The system message that the conversation begins with, or None."""
        is_there = self.messages and self.messages[0]["role"] == SYSTEM
        return self.messages[0]["content"] if is_there else None

    def set_system(self, text: str | None) -> None:
        """Begin with this system message; None with none."""
        rest = self.messages[self.system is not None :]
        self.messages = rest if text is None else [{"role": SYSTEM, "content": text}, *rest]

    def clear(self) -> None:
        """Forget all but the system message."""
        system = self.system
        self.messages, self.unanswered = [], None
        self.set_system(system)

    def keep(self, messages: Sequence[Message], answer: Message) -> None:
        """Go on with messages and the answer to them."""
        self.messages, self.unanswered = [*messages, answer], None

    def asked_again(self) -> list[Message]:
        """Return the messages that the last answer was given to."""
        last = len(self.messages) - 1
        if last < 1 or self.messages[last]["role"] != ASSISTANT:
            raise BadInputError("/retry: there is no answer to retry yet")
        return self.messages[:last]

    def open_calls(self) -> list[dict[str, Any]]:
        """Return the tool calls of the last answer that have no result yet."""
        results = []
        for message in reversed(self.messages):
            if message["role"] != TOOL:
                break
            results.append(message.get("tool_call_id"))
        last = self.messages[: len(self.messages) - len(results)][-1:]
        calls = last[0].get("tool_calls", ()) if last else ()
        return [call for call in calls if call.get("id") not in results]

    def save(self, path: StrPath) -> None:
        text = json.dumps({"messages": self.messages}, ensure_ascii=False, indent=2)
        write_whole(path, f"{text}\n".encode())

    def load(self, path: StrPath) -> None:
        """Take over the messages of a file; one that is refused changes nothing."""
        found = read_object(path).get("messages")
        messages = checked(MESSAGES, found, f"{path}: messages")
        self.messages = plain(messages)
        self.unanswered = None
