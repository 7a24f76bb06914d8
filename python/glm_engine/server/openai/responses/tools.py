"""Functions, and namespaces of them, as the one flat list that templates know."""

from glm_engine.server.errors import ApiError
from glm_engine.server.fields import MAX_TOOLS
from glm_engine.server.openai.tool_choice import allowed

JOINT = "__"


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


def offered_tools(fields):
    """Return the tools that the model is told of, as OpenAI's chat lists them."""
    choice = fields.tool_choice
    if choice == "none":
        return []
    tools = [template_tool(*one) for one in functions_of(fields.tools)]
    if isinstance(choice, str | None) or choice.type == "function":
        return tools
    return allowed({tool.name for tool in choice.tools}, tools, "tool_choice.tools")


def template_tool(namespace, tool):
    function = tool.model_dump(exclude_none=True, exclude={"type"})
    return {"type": "function", "function": {**function, "name": flat_name(namespace, tool.name)}}
