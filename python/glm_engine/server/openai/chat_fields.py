"""The fields of a chat request beside those that completions share."""

from typing import Any, Literal

from pydantic import Field

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


class JsonSchema(StrictModel):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


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


class ChatRequest(SamplingFields, ConversationFields):
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: Harmless = None
    response_format: ResponseFormat | None = None
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
