"""Which tools the model may call, and whether it must."""

from typing import Annotated, Literal

from pydantic import Field

from glm_engine.server.errors import ApiError, quoted
from glm_engine.server.fields import MAX_TOOLS, StrictModel, list_of
from glm_engine.server.openai.messages import template_tools


class NamedFunction(StrictModel):
    name: str


class NamedTool(StrictModel):
    type: Literal["function"]
    function: NamedFunction


class AllowedTools(StrictModel):
    mode: Literal["auto", "required"]
    tools: list_of(NamedTool, MAX_TOOLS, least=1)


class AllowedToolChoice(StrictModel):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ObjectChoice = Annotated[NamedTool | AllowedToolChoice, Field(discriminator="type")]
ToolChoice = Literal["none", "auto", "required"] | ObjectChoice


def mode_of(choice):
    """Return "none", "auto", "required", or the one tool that must be called."""
    return choice.allowed_tools.mode if isinstance(choice, AllowedToolChoice) else choice or "auto"


def offered_tools(fields):
    """Return the tools that the model is told of, as the template takes them."""
    choice, tools = fields.tool_choice, template_tools(fields.tools)
    if choice == "none":
        return []
    if not isinstance(choice, AllowedToolChoice):
        return tools
    names = {tool.function.name for tool in choice.allowed_tools.tools}
    return allowed(names, tools, "tool_choice.allowed_tools.tools")


def allowed(names, tools, param):
    """Return the tools that `param` names; ApiError for a name that no tool has."""
    known = {tool["function"]["name"] for tool in tools}
    if unknown := sorted(names - known):
        raise ApiError(400, f"{param}: no tool is named {quoted(unknown[0])}", param)
    return [tool for tool in tools if tool["function"]["name"] in names]
