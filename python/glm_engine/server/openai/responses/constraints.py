"""From the fields of a request to the grammar that its answer must follow."""

from glm_engine.server.constraints import Constraint, free_constraints, required_calls
from glm_engine.server.openai.constraints import schema_constraint

FORMAT = "text.format"


def constraints_of(fields, tools):
    """Return what a request asks for; where only calls may come, `text.format` says nothing."""
    takes_one = fields.parallel_tool_calls is False
    form = format_constraints(fields.text and fields.text.format)
    required = call_constraints(fields.tool_choice, tools, takes_one)
    return required or free_constraints(form, tools, takes_one)


def call_constraints(choice, tools, takes_one):
    mode = choice if isinstance(choice, str | None) else getattr(choice, "mode", "required")
    if mode in (None, "auto", "none"):
        return []
    return required_calls(tools, getattr(choice, "name", None), takes_one)


def format_constraints(form):
    if form is None or form.type == "text":
        return []
    if form.type == "json_object":
        return [Constraint(FORMAT, "json_object")]
    return [schema_constraint(form, f"{FORMAT}.schema")]
