"""The fields of a request and the items of its input, with their bounds."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from glm_engine.server.fields import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    MAX_TOOLS,
    Harmless,
    LenientModel,
    OmittedPart,
    StrictModel,
    list_by_type,
    list_of,
    only,
    whole,
    wrong_kind,
)
from glm_engine.server.http.api_errors import ApiError, quoted
from glm_engine.server.openai.chat_messages import (
    MAX_PARTS,
    REASONING_EFFORTS,
    Budget,
    RefusalPart,
    Thinking,
)
from glm_engine.server.openai.request_fields import SamplingFields

MAX_ITEMS = 4096
REFERENCE = "item_reference"
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
JOINT = "__"


class Item(LenientModel):
    """Items of answers come back, with fields that nobody reads: id, status, phase."""


class TextPart(Item):
    type: Literal["input_text", "output_text"]
    text: str


class UnreadPart(OmittedPart, Item):
    type: Literal["input_image", "input_file"]


class ThoughtPart(Item):
    type: Literal["reasoning_text"]
    text: str


def text_part(text):
    return {"type": "input_text", "text": text}


Parts = list_by_type(
    *(MAX_PARTS, "part", text_part),
    input_text=TextPart,
    output_text=TextPart,
    refusal=RefusalPart,
)
ResultParts = list_by_type(
    *(MAX_PARTS, "part", text_part),
    input_text=TextPart,
    input_image=UnreadPart,
    input_file=UnreadPart,
)
ThoughtParts = list_by_type(MAX_PARTS, "part", reasoning_text=ThoughtPart)


class MessageItem(Item):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts


class ThoughtItem(Item):
    type: Literal["reasoning"]
    content: ThoughtParts | None = None
    encrypted_content: str | None = None


class CallItem(Item):
    type: Literal["function_call"]
    call_id: str = Field(min_length=1, max_length=256)
    name: str = Field(min_length=1, max_length=256)
    namespace: str | None = None
    arguments: str | None


class ResultItem(Item):
    type: Literal["function_call_output"]
    call_id: str
    output: ResultParts


Items = list_by_type(
    *(MAX_ITEMS, "item"),
    message=MessageItem,
    reasoning=ThoughtItem,
    function_call=CallItem,
    function_call_output=ResultItem,
)


def typed_items(value):
    """Return a list of items that all say their type; a message need not."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise wrong_kind("a string or a list of items", items)
    for at, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == REFERENCE:
            raise ValueError(
                f"item {at} is an item_reference, but this server does not store items"
            )
    return [
        {"type": "message", **item} if isinstance(item, dict) and "role" in item else item
        for item in items
    ]


Input = Annotated[Items, Field(min_length=1), BeforeValidator(typed_items, str | list[Any])]


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


def flat_name(namespace, name):
    """Return the name by which the model knows a function."""
    return f"{namespace}{JOINT}{name}" if namespace else name


def functions_of(tools):
    """Return (namespace, function) of each; the namespace is None where it stands alone."""
    found = []
    for tool in tools or ():
        inside = tool.tools if tool.type == "namespace" else None
        found += [(None, tool)] if inside is None else [(tool.name, one) for one in inside]
    if len(found) > MAX_TOOLS:
        message = f"tools: expected at most {MAX_TOOLS} functions, got {len(found)}"
        raise ApiError(400, message, "tools")
    return found


def client_names(tools):
    """Return the namespace and the name that the client gave to each function, by its flat name."""
    return {
        flat_name(namespace, function.name): (namespace, function.name)
        for namespace, function in functions_of(tools)
    }
