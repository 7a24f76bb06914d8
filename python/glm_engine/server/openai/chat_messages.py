"""Chat messages: what clients may send, and what the checkpoint's template gets."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import BeforeValidator, Field

from glm_engine.server.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Harmless,
    LenientModel,
    StrictModel,
    check_type,
    items,
    only,
    whole,
    wrong_kind,
)
from glm_engine.server.http.api_errors import ApiError, quoted
from glm_engine.server.http.json_bodies import check_arguments
from glm_engine.text import template
from glm_engine.text.conversation import MAX_TOKENS, ChatPrompt, Json
from glm_engine.text.template import (
    ENABLE_THINKING,
    PART_TYPES,
    RESERVED_VARIABLES,
    check_continued,
)

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.openai.chat_completions import ChatRequest

MAX_PARTS = 4096
MAX_CALLS = 256
REASONING_EFFORTS = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Budget = Annotated[int, whole(ge=-1, le=MAX_TOKENS)]
NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})
HINTS = ("reasoning_effort", "verbosity")


class TextPart(LenientModel):
    type: Literal["text"]
    text: str


class RefusalPart(LenientModel):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


def check_parts(value: Any, types: Sequence[str] = PART_TYPES, takes_null: bool = True) -> Any:
    """Name what is no text: a text model must not be led to answer about what it cannot read."""
    if not isinstance(value, str | list) and not (takes_null and value is None):
        raise wrong_kind("a string or a list of parts", value)
    parts = value if isinstance(value, list) else ()
    if len(parts) > MAX_PARTS:
        raise ValueError(f"expected at most {MAX_PARTS} parts, got {len(parts)}")
    for at, part in enumerate(parts):
        check_type(f"part {at}", part, types)
    return value


Part = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
MessageContent = Annotated[
    str | Annotated[list[Part], items(MAX_PARTS)] | None, BeforeValidator(check_parts)
]


class CalledFunction(LenientModel):
    name: str
    arguments: str | dict[str, Any] | None = "{}"


class ToolCall(LenientModel):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(LenientModel):
    """One turn; fields that answers hold and templates do not read may come back."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: MessageContent = None
    name: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall], items(MAX_CALLS)] | None = None
    function_call: CalledFunction | None = None
    tool_call_id: str | None = None


class FunctionTool(StrictModel):
    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Harmless = Field(None, exclude=True)


class Tool(StrictModel):
    type: Literal["function"]
    function: FunctionTool
    cache_control: Harmless = Field(None, exclude=True)


Messages = Annotated[list[Message], items(MAX_MESSAGES, least=1)]
Tools = Annotated[list[Tool], items(MAX_TOOLS)]


def template_messages(messages: Sequence[Message]) -> list[Json]:
    """Return the messages as a template expects them: arguments as objects, not as text."""
    check_arguments(argument_texts(messages))
    stated = [one.model_dump(exclude_none=True) for one in messages]
    return template.template_messages("messages", stated)


def argument_texts(messages: Iterable[Message]) -> list[str]:
    """Return the arguments of all calls that are texts."""
    functions = [call.function for one in messages for call in one.tool_calls or ()]
    functions += [one.function_call for one in messages if one.function_call]
    return [one.arguments for one in functions if isinstance(one.arguments, str)]


def template_tools(tools: Iterable[Tool] | None) -> list[Json]:
    return [tool.model_dump(exclude_none=True) for tool in tools or ()]


class NamedFunction(StrictModel):
    name: str


class NamedTool(StrictModel):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(StrictModel):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], items(MAX_TOOLS, least=1)]


class AllowedToolChoice(StrictModel):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ObjectChoice = Annotated[NamedTool | AllowedToolChoice, Field(discriminator="type")]
ToolChoice = Literal["none", "auto", "required"] | ObjectChoice


def mode_of(choice: ToolChoice | None) -> NamedTool | str:
    """Return "none", "auto", "required", or the one tool that must be called."""
    return choice.allowed_tools.mode if isinstance(choice, AllowedToolChoice) else choice or "auto"


def offered_tools(fields: "ChatRequest") -> list[Json]:
    """Return the tools that the model is told of, as the template takes them."""
    choice, tools = fields.tool_choice, template_tools(fields.tools)
    if choice == "none":
        return []
    if not isinstance(choice, AllowedToolChoice):
        return tools
    names = {tool.function.name for tool in choice.allowed_tools.tools}
    return allowed(names, tools, "tool_choice.allowed_tools.tools")


def allowed(names: set[str], tools: list[Json], param: str) -> list[Json]:
    """Return the tools that `param` names; ApiError for a name that no tool has."""
    known = {tool["function"]["name"] for tool in tools}
    if unknown := sorted(names - known):
        raise ApiError(400, f"{param}: no tool is named {quoted(unknown[0])}", param)
    return [tool for tool in tools if tool["function"]["name"] in names]


class Thinking(StrictModel):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = None
    clear_thinking: bool | None = None


class RenderingFields(StrictModel):
    """What a prompt is rendered from beside its messages."""

    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking: Thinking | None = None
    reasoning_effort: REASONING_EFFORTS | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = False
    add_special_tokens: Annotated[Any, only(False)] = None
    documents: Annotated[Any, only([])] = None
    chat_template: Annotated[Any, only()] = None


class MessagesField(StrictModel):
    messages: Messages


class ConversationFields(RenderingFields, MessagesField):
    """What a prompt is rendered from."""


class TemplateFields(Protocol):
    """The fields of a request that the template's variables come from."""

    @property
    def chat_template_kwargs(self) -> Json | None:
        """Variables that the client gives."""

    @property
    def thinking(self) -> Thinking | None:
        """Whether the model thinks, in the form of Z.ai's API."""

    @property
    def reasoning_effort(self) -> str | None:
        """How much the model thinks, in OpenAI's words."""

    @property
    def verbosity(self) -> str | None:
        """How long an answer is."""


def template_variables(fields: TemplateFields, defaults: Mapping[str, Any] = NO_DEFAULTS) -> Json:
    """Return what the template gets beside messages and tools.

    defaults: the server's, which whatever the request says wins over.
    """
    variables = dict(fields.chat_template_kwargs or {})
    reserved = RESERVED_VARIABLES.intersection(variables)
    if reserved:
        name = min(reserved)
        raise ApiError(400, f"chat_template_kwargs cannot set {name}", "chat_template_kwargs")
    if fields.reasoning_effort not in (None, "none"):
        defaults = {name: defaults[name] for name in defaults if name != ENABLE_THINKING}
    variables = {**defaults, **variables}
    if fields.thinking:
        variables[ENABLE_THINKING] = fields.thinking.type != "disabled"
        if fields.thinking.clear_thinking is not None:
            variables["clear_thinking"] = fields.thinking.clear_thinking
    if fields.reasoning_effort == "none":
        variables[ENABLE_THINKING] = False
    stated = fields.chat_template_kwargs or {}
    for name in HINTS:
        if (value := getattr(fields, name)) is not None:
            variables[name] = stated.get(name, value)
    return variables


async def chat_prompt(
    service: "Service", fields: RenderingFields, messages: Sequence[Message], tools: list[Json]
) -> ChatPrompt:
    """Return what the template gets of a chat request."""
    size = sum(map(len, argument_texts(messages)))
    variables = template_variables(fields, service.settings.template_variables)
    found = await service.encoder.apart(size, template_messages, messages)
    continues = bool(fields.continue_final_message)
    if continues:
        check_continued("messages", found[-1], fields.add_generation_prompt)
    adds_turn = fields.add_generation_prompt is not False and not continues
    return ChatPrompt(found, tools, variables, "messages", adds_turn, continues)
