"""The fields of a chat request beside those that completions share."""

from typing import Any, Literal

from glm_engine.server.fields import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    SamplingFields,
    StrictModel,
    only,
    whole,
)
from glm_engine.server.openai.constraint_fields import ConstraintFields
from glm_engine.server.openai.messages import Messages, Tools
from glm_engine.server.openai.prediction import Prediction
from glm_engine.server.openai.prompt_fields import PromptFields
from glm_engine.server.openai.tool_choice import ToolChoice

REASONING_EFFORTS = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


Budget = whole(ge=-1, le=MAX_TOKENS)


class Thinking(StrictModel):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: whole(ge=0, le=MAX_TOKENS) | None = None
    clear_thinking: bool | None = None


class ConversationFields(StrictModel):
    """What a prompt is rendered from."""

    messages: Messages
    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: Thinking | None = None
    reasoning_effort: REASONING_EFFORTS | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = False
    add_special_tokens: only(False) = None
    documents: only([]) = None
    chat_template: only() = None


class ChatRequest(PromptFields, SamplingFields, ConversationFields, ConstraintFields):
    thinking_budget: Budget | None = None
    thinking_token_budget: Budget | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    logprobs: bool | None = False
    top_logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    max_completion_tokens: whole(ge=1, le=MAX_TOKENS) | None = None
    include_reasoning: bool | None = True
    separate_reasoning: only(True) = None
    stream_reasoning: only(True) = None
    prediction: Prediction | None = None
    echo: bool | None = False
    modalities: only(["text"]) = None
    audio: only() = None
    moderation: only() = None
    functions: only([]) = None
    function_call: only("none", "auto") = None
    web_search_options: only() = None
