"""The fields of a request and the items of its input, with their bounds."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from glm_engine.server.fields import (
    MAX_TOOLS,
    Harmless,
    LenientModel,
    OmittedPart,
    StrictModel,
    items,
    items_by_type,
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
from glm_engine.server.openai.request_fields import AnyStreamOptions, SamplingFields
from glm_engine.text.conversation import MAX_LOGPROBS, MAX_TOKENS

MAX_ITEMS = 4096
REFERENCE = "item_reference"
LOGPROBS = "message.output_text.logprobs"
THOUGHTS = "reasoning.encrypted_content"
STATELESS = "this server does not store responses: send the whole conversation as input"
NOT_LATER = "this server does not store responses, so none can be fetched later"
ELSEWHERE = "use text.format instead"
NO_HOSTED_PROMPTS = "this server does not store prompts: send instructions and input"
MAX_METADATA = 16
ShortText = Annotated[str, Field(max_length=1024)]
MAX_INCLUDED = 16
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]
Included = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
]
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


def text_part(text: str) -> dict[str, str]:
    return {"type": "input_text", "text": text}


parts = partial(items_by_type, MAX_PARTS, "part")
Part = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
Parts = Annotated[
    list[Part], parts(Part, "input_text", "output_text", "refusal", whole_of_text=text_part)
]
ResultPart = Annotated[TextPart | UnreadPart, Field(discriminator="type")]
ResultParts = Annotated[
    list[ResultPart],
    parts(ResultPart, "input_text", "input_image", "input_file", whole_of_text=text_part),
]
ThoughtParts = Annotated[list[ThoughtPart], parts(ThoughtPart, "reasoning_text")]


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
    """What a tool answered; one that nobody called states its name in place of a call's id."""

    type: Literal["function_call_output"]
    call_id: str | None = None
    name: str | None = None
    output: ResultParts


InputItem = Annotated[
    MessageItem | ThoughtItem | CallItem | ResultItem, Field(discriminator="type")
]
Items = Annotated[
    list[InputItem],
    items_by_type(
        *(MAX_ITEMS, "item", InputItem),
        *("message", "reasoning", "function_call", "function_call_output"),
    ),
]


def typed_items(value: Any) -> list[Any]:
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


def known_tool(value: Any) -> Any:
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
    allowed_callers: Annotated[Any, only(["direct"])] = Field(None, exclude=True)
    defer_loading: Annotated[Any, only(False)] = Field(None, exclude=True)


class Namespace(StrictModel):
    """Functions that the client tells apart by two names; templates have no place for the rest."""

    type: Literal["namespace"]
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    tools: Annotated[list[FunctionTool], items(MAX_TOOLS)]


class NamedTool(StrictModel):
    type: Literal["function"]
    name: str


class AllowedTools(StrictModel):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], items(MAX_TOOLS, least=1)]


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
    mode: Annotated[Any, only("standard")] = None


class StreamOptions(AnyStreamOptions):
    """Usage always comes in the last event."""

    include_obfuscation: Harmless = None
    include_usage: Harmless = None


class ResponsesRequest(SamplingFields):
    input: Input
    instructions: str | None = None
    max_output_tokens: Annotated[int, whole(ge=1, le=MAX_TOKENS)] | None = None
    tools: Annotated[list[Tool], items(MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    thinking: Thinking | None = None
    thinking_budget: Budget | None = None
    thinking_token_budget: Budget | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    include: Annotated[list[Included], items(MAX_INCLUDED)] | None = None
    top_logprobs: Annotated[int, whole(ge=0, le=MAX_LOGPROBS)] | None = None
    stream_options: StreamOptions | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=MAX_METADATA)] | None = (
        None
    )
    user: ShortText | None = None
    safety_identifier: ShortText | None = None
    prompt_cache_key: ShortText | None = None
    client_metadata: Harmless = None
    max_tool_calls: Harmless = None
    previous_response_id: Annotated[Any, only(reason=STATELESS)] = None
    conversation: Annotated[Any, only(reason=STATELESS)] = None
    background: Annotated[Any, only(False, reason=NOT_LATER)] = None
    background_options: Annotated[Any, only(reason=NOT_LATER)] = None
    prompt: Annotated[Any, only(reason=NO_HOSTED_PROMPTS)] = None
    truncation: Annotated[Any, only("disabled")] = None
    context_management: Annotated[Any, only([])] = None
    moderation: Annotated[Any, only()] = None
    access_programs: Annotated[Any, only()] = None
    image: Annotated[Any, only()] = None
    max_tokens: Annotated[Any, only(reason="use max_output_tokens instead")] = None
    n: Annotated[Any, only(1)] = None
    response_format: Annotated[Any, only(reason=ELSEWHERE)] = None
    structured_outputs: Annotated[Any, only(reason=ELSEWHERE)] = None
    guided_json: Annotated[Any, only(reason=ELSEWHERE)] = None
    guided_regex: Annotated[Any, only(reason=ELSEWHERE)] = None
    guided_choice: Annotated[Any, only(reason=ELSEWHERE)] = None
    guided_grammar: Annotated[Any, only(reason=ELSEWHERE)] = None

    def includes(self, name: str) -> bool:
        return name in (self.include or ())

    @property
    def reasoning_effort(self) -> str | None:
        return self.reasoning.effort if self.reasoning else None

    @property
    def verbosity(self) -> str | None:
        return self.text.verbosity if self.text else None


def flat_name(namespace: str | None, name: str) -> str:
    """Return the name by which the model knows a function."""
    return f"{namespace}{JOINT}{name}" if namespace else name


def functions_of(tools: Iterable[Tool] | None) -> list[tuple[str | None, FunctionTool]]:
    """Return (namespace, function) of each; the namespace is None where it stands alone."""
    found: list[tuple[str | None, FunctionTool]] = []
    for tool in tools or ():
        if isinstance(tool, Namespace):
            found += [(tool.name, one) for one in tool.tools]
        else:
            found.append((None, tool))
    if len(found) > MAX_TOOLS:
        message = f"tools: expected at most {MAX_TOOLS} functions, got {len(found)}"
        raise ApiError(400, message, "tools")
    return found


def client_names(tools: Iterable[Tool] | None) -> dict[str, tuple[str | None, str]]:
    """Return the namespace and the name that the client gave to each function, by its flat name."""
    return {
        flat_name(namespace, function.name): (namespace, function.name)
        for namespace, function in functions_of(tools)
    }
