"""From the fields of a request to the grammar that its answer must follow."""

from glm_engine.server.constraints import Constraint, free_constraints, required_calls
from glm_engine.server.errors import ApiError


def constraints_of(fields, tools):
    """Return what a request asks for; JSON may come instead of calls."""
    choice, tools = fields.tool_choice, held_tools(fields, tools)
    required, form = call_constraints(choice, tools), format_constraints(fields)
    takes_one = bool(choice and choice.disable_parallel_tool_use)
    return required or free_constraints(form, tools, takes_one)


def held_tools(fields, tools):
    """Return the tools with what the client says of their strictness, which no template is told."""
    strict = {tool.name for tool in fields.tools or () if tool.strict}
    functions = [tool["function"] for tool in tools]
    return [
        {"type": "function", "function": {**one, "strict": one["name"] in strict}}
        for one in functions
    ]


def call_constraints(choice, tools):
    """Return what `tool_choice` asks for."""
    if choice is None or choice.type in ("auto", "none"):
        return []
    if choice.type == "tool" and choice.name is None:
        raise ApiError(400, "tool_choice.name: expected a tool name", "tool_choice.name")
    name = choice.name if choice.type == "tool" else None
    return required_calls(tools, name, takes_one=bool(choice.disable_parallel_tool_use))


def format_constraints(fields):
    """Return what the form of the answer asks for; `output_format` is its older place."""
    config = fields.output_config
    if config and config.format:
        return [schema_constraint("output_config.format.schema", config.format)]
    if fields.output_format:
        return [schema_constraint("output_format.schema", fields.output_format)]
    return []


def schema_constraint(param, form):
    return Constraint(param, "json_schema", (form.schema_,), {"strict": True, "name": param})
