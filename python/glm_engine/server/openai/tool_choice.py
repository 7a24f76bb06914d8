"""Which tools the model may call, and whether it must."""

from typing import Annotated, Literal

from pydantic import Field

from glm_engine.server.errors import ApiError
from glm_engine.server.openai.fields import StrictModel, list_of
from glm_engine.server.openai.messages import MAX_TOOLS, template_tools


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
    return allowed(choice, tools) if isinstance(choice, AllowedToolChoice) else tools


def allowed(choice, tools):
    """Return the tools out of the list that `allowed_tools` names; ApiError for one not in it."""
    names = {tool.function.name for tool in choice.allowed_tools.tools}
    known = {tool["function"]["name"] for tool in tools}
    if unknown := sorted(names - known):
        message = f"tool_choice.allowed_tools: no tool is named {unknown[0]!r}"
        raise ApiError(400, message, "tool_choice.allowed_tools.tools")
    return [tool for tool in tools if tool["function"]["name"] in names]
