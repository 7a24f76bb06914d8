"""The fields of a request and the blocks of its messages, with their bounds."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from glm_engine.server.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Harmless,
    LenientModel,
    OmittedPart,
    StopText,
    StrictModel,
    TopP,
    items,
    items_by_type,
    only,
    whole,
)
from glm_engine.server.http.api_errors import quoted
from glm_engine.text.conversation import MAX_STOPS, MAX_TOKENS

MAX_BLOCKS = 4096


class Block(LenientModel):
    """Blocks of answers come back, with fields that nobody reads: cache_control, signature."""


class TextBlock(Block):
    type: Literal["text"]
    text: str


class ThinkingBlock(Block):
    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Block):
    """A thought that only the service which enciphered it can read."""

    type: Literal["redacted_thinking"]


def object_or_none(value: Any) -> Any:
    """Return what a call's input is: clients write that of a call without arguments as null."""
    return {} if value is None or value == "" else value


class ToolUseBlock(Block):
    type: Literal["tool_use"]
    id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    input: Annotated[dict[str, Any], BeforeValidator(object_or_none)]


def text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


blocks = partial(items_by_type, MAX_BLOCKS, "block", whole_of_text=text_block)
TextBlocks = Annotated[list[TextBlock], blocks(TextBlock, "text")]


class UnreadBlock(OmittedPart, Block):
    type: Literal["image", "document"]


ResultBlock = Annotated[TextBlock | UnreadBlock, Field(discriminator="type")]
ResultBlocks = Annotated[list[ResultBlock], blocks(ResultBlock, "text", "image", "document")]


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: ResultBlocks | None = None
    is_error: bool | None = None


UserBlock = Annotated[TextBlock | ToolResultBlock, Field(discriminator="type")]
UserBlocks = Annotated[list[UserBlock], blocks(UserBlock, "text", "tool_result")]
AssistantBlock = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock, Field(discriminator="type")
]
AssistantBlocks = Annotated[
    list[AssistantBlock],
    blocks(AssistantBlock, "text", "thinking", "redacted_thinking", "tool_use"),
]


class UserMessage(StrictModel):
    role: Literal["user"]
    content: UserBlocks


class AssistantMessage(StrictModel):
    role: Literal["assistant"]
    content: AssistantBlocks


class SystemMessage(StrictModel):
    role: Literal["system"]
    content: TextBlocks


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]


def custom_tool(value: Any) -> Any:
    """Refuse the tools that Anthropic defines or runs itself."""
    if isinstance(value, dict) and value.get("type") not in (None, "custom"):
        kind = value["type"]
        raise ValueError(f"tool type {quoted(kind)} is not supported; expected 'custom'")
    return value


class CustomTool(StrictModel):
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    input_schema: dict[str, Any]
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: Harmless = None
    input_examples: Harmless = None
    eager_input_streaming: Harmless = None
    allowed_callers: Annotated[Any, only(["direct"])] = None
    defer_loading: Annotated[Any, only(False)] = None


Tool = Annotated[CustomTool, BeforeValidator(custom_tool, CustomTool)]


class ToolChoice(StrictModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = False


class Thinking(StrictModel):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, whole(ge=1, le=MAX_TOKENS)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class JsonFormat(StrictModel):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(StrictModel):
    effort: Harmless = None
    format: JsonFormat | None = None


class PromptFields(StrictModel):
    """What a prompt is rendered from."""

    model: str | None = None
    messages: Annotated[list[Message], items(MAX_MESSAGES, least=1)]
    system: TextBlocks | None = None
    tools: Annotated[list[Tool], items(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: JsonFormat | None = None
    cache_control: Harmless = None
    context_management: Harmless = None
    speed: Harmless = None
    user_profile_id: Harmless = None
    workspace_id: Harmless = None
    mcp_servers: Annotated[Any, only([])] = None
    thread: Annotated[Any, only()] = None
    response_format: Annotated[Any, only(reason="use output_config.format instead")] = None
    stop: Annotated[Any, only(reason="use stop_sequences instead")] = None


class CountRequest(PromptFields):
    pass


class MessagesRequest(PromptFields):
    max_tokens: Annotated[int, whole(ge=1, le=MAX_TOKENS)]
    stream: bool | None = False
    stop_sequences: Annotated[list[StopText], items(MAX_STOPS)] | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: TopP | None = None
    top_k: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = None
    metadata: Harmless = None
    service_tier: Harmless = None
    inference_geo: Harmless = None
    container: Annotated[Any, only()] = None
    diagnostics: Harmless = None
    anthropic_version: Harmless = None
    anthropic_beta: Harmless = None
