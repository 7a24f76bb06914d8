"""The fields of a chat request beside those that completions share."""

from typing import Any, Literal

from pydantic import Field

from glm_engine.server.openai.constraint_fields import ConstraintFields
from glm_engine.server.openai.fields import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    Harmless,
    SamplingFields,
    StrictModel,
    only,
)
from glm_engine.server.openai.messages import Messages, Tools

REASONING_EFFORTS = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Thinking(StrictModel):
    type: Literal["enabled", "disabled"]
    clear_thinking: bool | None = None


class NamedFunction(StrictModel):
    name: str


class NamedTool(StrictModel):
    type: Literal["function"]
    function: NamedFunction


class ConversationFields(StrictModel):
    """What a prompt is rendered from."""

    messages: Messages
    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: Thinking | None = None
    reasoning_effort: REASONING_EFFORTS | None = None
    add_generation_prompt: bool | None = True
    add_special_tokens: only(False) = None
    continue_final_message: only(False) = None
    documents: only([]) = None
    chat_template: only() = None


class ChatRequest(SamplingFields, ConversationFields, ConstraintFields):
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = True
    logprobs: bool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    include_reasoning: bool | None = True
    prediction: Harmless = None
    echo: only(False) = None
    modalities: only(["text"]) = None
    verbosity: only("medium") = None
    audio: only() = None
    functions: only([]) = None
    function_call: only("none", "auto") = None
    web_search_options: only() = None
