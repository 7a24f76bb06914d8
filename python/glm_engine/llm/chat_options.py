"""What a conversation's prompt and answer depend on beside its messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from glm_engine.core.checks import (
    FieldError,
    NamedFields,
    check_fields,
    flag,
    mapping_of,
    text_of,
    wrong,
)
from glm_engine.llm.outputs import Tools
from glm_engine.text.template import ENABLE_THINKING, RESERVED_VARIABLES

ToolChoice = str | Mapping[str, object]
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
            raise FieldError("chat_template_kwargs", f"cannot set {reserved[0]}")
        thinks = {} if self.thinking is None else {ENABLE_THINKING: self.thinking}
        return {**stated, **thinks}

    @property
    def must_call(self) -> bool:
        """Whether nothing but calls may come."""
        return self.tool_choice not in ("auto", "none")

    def called_name(self) -> str | None:
        """Return the name of the one tool that must be called, None where none is named."""
        choice = self.tool_choice
        if isinstance(choice, Mapping):
            function = mapping_of("tool_choice.function", choice.get("function"))
            return text_of("tool_choice.function.name", function.get("name"))
        if choice not in ("none", "auto", "required"):
            named = "{'type': 'function', 'function': {'name': NAME}}"
            raise wrong("tool_choice", f"'none', 'auto', 'required' or {named}", choice)
        return None
