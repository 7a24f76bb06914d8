"""The fields of a request, with their bounds."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from glm_engine.server.errors import quoted
from glm_engine.server.fields import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    MAX_TOOLS,
    Harmless,
    SamplingFields,
    StrictModel,
    list_of,
    only,
    whole,
)
from glm_engine.server.openai.chat_fields import REASONING_EFFORTS, Budget, Thinking
from glm_engine.server.openai.responses.items import Input

LOGPROBS = "message.output_text.logprobs"
THOUGHTS = "reasoning.encrypted_content"
OF_HOSTED_TOOLS = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
STATELESS = "this server does not store responses: send the whole conversation as input"
NOT_LATER = "this server does not store responses, so none can be fetched later"
ELSEWHERE = "use text.format instead"
NO_HOSTED_PROMPTS = "this server does not store prompts: send instructions and input"
MAX_METADATA = 16
ShortText = Annotated[str, Field(max_length=1024)]
MAX_INCLUDED = 16
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
Included = Literal[LOGPROBS, THOUGHTS, *OF_HOSTED_TOOLS]


def known_tool(value):
    """Refuse the tools that OpenAI runs itself, and those whose input is no JSON."""
    if isinstance(value, dict) and value.get("type") not in ("function", "namespace"):
        kind = value.get("type")
        raise ValueError(
            f"tool type {quoted(kind)} is not supported; expected 'function' or 'namespace'"
        )
    return value


class FunctionTool(StrictModel):
    type: Literal["function"]
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: Harmless = Field(None, exclude=True)
    allowed_callers: only(["direct"]) = Field(None, exclude=True)
    defer_loading: only(False) = Field(None, exclude=True)


class Namespace(StrictModel):
    """Functions that the client tells apart by two names; templates have no place for the rest."""

    type: Literal["namespace"]
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    tools: list_of(FunctionTool, MAX_TOOLS)


class NamedTool(StrictModel):
    type: Literal["function"]
    name: str


class AllowedTools(StrictModel):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list_of(NamedTool, MAX_TOOLS, least=1)


AnyTool = Annotated[FunctionTool | Namespace, Field(discriminator="type")]
Tool = Annotated[AnyTool, BeforeValidator(known_tool, AnyTool)]


ObjectChoice = Annotated[NamedTool | AllowedTools, Field(discriminator="type")]
ToolChoice = Literal["none", "auto", "required"] | ObjectChoice


class Format(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextConfig(StrictModel):
    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(StrictModel):
    """Thoughts come whole: what summary is asked for has no effect."""

    effort: REASONING_EFFORTS | None = None
    summary: Harmless = None
    generate_summary: Harmless = None
    context: Harmless = None
    mode: only("standard") = None


class StreamOptions(StrictModel):
    """Usage always comes in the last event."""

    include_obfuscation: Harmless = None
    include_usage: Harmless = None


class ResponsesRequest(SamplingFields):
    input: Input
    instructions: str | None = None
    max_output_tokens: whole(ge=1, le=MAX_TOKENS) | None = None
    tools: list_of(Tool, MAX_TOOLS) | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    thinking: Thinking | None = None
    thinking_budget: Budget | None = None
    thinking_token_budget: Budget | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    include: list_of(Included, MAX_INCLUDED) | None = None
    top_logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    stream_options: StreamOptions | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=MAX_METADATA)] | None = (
        None
    )
    user: ShortText | None = None
    safety_identifier: ShortText | None = None
    prompt_cache_key: ShortText | None = None
    client_metadata: Harmless = None
    max_tool_calls: Harmless = None
    previous_response_id: only(reason=STATELESS) = None
    conversation: only(reason=STATELESS) = None
    background: only(False, reason=NOT_LATER) = None
    background_options: only(reason=NOT_LATER) = None
    prompt: only(reason=NO_HOSTED_PROMPTS) = None
    truncation: only("disabled") = None
    context_management: only([]) = None
    moderation: only() = None
    access_programs: only() = None
    image: only() = None
    max_tokens: only(reason="use max_output_tokens instead") = None
    n: only(1) = None
    response_format: only(reason=ELSEWHERE) = None
    structured_outputs: only(reason=ELSEWHERE) = None
    guided_json: only(reason=ELSEWHERE) = None
    guided_regex: only(reason=ELSEWHERE) = None
    guided_choice: only(reason=ELSEWHERE) = None
    guided_grammar: only(reason=ELSEWHERE) = None

    def includes(self, name):
        return name in (self.include or ())

    @property
    def reasoning_effort(self):
        return self.reasoning and self.reasoning.effort

    @property
    def verbosity(self):
        return self.text and self.text.verbosity
