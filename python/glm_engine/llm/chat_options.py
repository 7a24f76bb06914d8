"""What a conversation's prompt and answer depend on beside its messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from glm_engine.core.errors import BadInputError
from glm_engine.llm.constraints import ToolChoice
from glm_engine.llm.fields import NamedFields, check_fields, flag, mapping_of
from glm_engine.llm.outputs import Tools

RESERVED_VARIABLES = frozenset({"self", "messages", "tools", "documents", "add_generation_prompt"})
FLAGS = ("parallel_tool_calls", "thinking", "add_generation_prompt", "continue_final_message")


class ChatKeywords(TypedDict, total=False):
    """What a conversation's prompt and answer depend on beside its messages.

    tools: functions in OpenAI's form. tool_choice: auto, none, required, or
    {"type": "function", "function": {"name": NAME}}, the one that must be called.
    parallel_tool_calls: False ends an answer behind its first call.
    thinking: whether the model thinks first; None leaves that to the template.
    chat_template_kwargs: variables of the template.
    add_generation_prompt: False ends the prompt behind the last message.
    continue_final_message: True goes on with the last message, which is the assistant's.
    """

    tools: Tools | None
    tool_choice: ToolChoice
    parallel_tool_calls: bool
    thinking: bool | None
    chat_template_kwargs: Mapping[str, object] | None
    add_generation_prompt: bool | None
    continue_final_message: bool


@dataclass(frozen=True, kw_only=True)
class ChatOptions(NamedFields):
    """The keywords of a chat with their defaults; see `ChatKeywords`."""

    tools: object = None
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    thinking: bool | None = None
    chat_template_kwargs: Mapping[str, object] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False

    def __post_init__(self) -> None:
        check_fields(self, dict.fromkeys(FLAGS, flag))

    def variables(self) -> dict[str, object]:
        """Return the variables of the template."""
        stated = mapping_of("chat_template_kwargs", self.chat_template_kwargs or {})
        reserved = sorted(RESERVED_VARIABLES.intersection(stated))
        if reserved:
            raise BadInputError(f"chat_template_kwargs: cannot set {reserved[0]}")
        thinks = {} if self.thinking is None else {"enable_thinking": self.thinking}
        return {**stated, **thinks}
