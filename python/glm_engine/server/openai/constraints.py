"""From the fields of a request to the grammar that its answer must follow."""

import orjson

from glm_engine.server.constraints import (
    EXACT_METHODS,
    Constraint,
    free_constraints,
    required_calls,
)
from glm_engine.server.errors import ApiError
from glm_engine.server.json_bounds import check_texts
from glm_engine.server.openai.tool_choice import NamedTool, mode_of

MAX_SCHEMA_CHARACTERS = 2**20

FORMAT = "response_format"
SCHEMA_PARAM = f"{FORMAT}.json_schema.schema"


def constraints_of(fields):
    """Return what a request without tools asks for."""
    return spaced(fields.structured_outputs, form_constraints(fields))


def form_constraints(fields):
    """Return what the fields of an answer's form ask for."""
    found = format_constraints(fields.response_format)
    outputs = fields.structured_outputs
    if outputs:
        found += json_constraint("structured_outputs.json", outputs.json_)
        found += text_constraints("structured_outputs.", outputs)
        if outputs.json_object:
            found.append(Constraint("structured_outputs.json_object", "json_object"))
    found += json_constraint("guided_json", fields.guided_json)
    return found + text_constraints("guided_", fields)


def format_constraints(form):
    if form is None or form.type == "text":
        return []
    if form.type == "json_object":
        return [Constraint(FORMAT, "json_object")]
    return [schema_constraint(form.json_schema, SCHEMA_PARAM)]


def schema_constraint(form, param):
    """Return what a schema with its strictness asks for; `param` is where the schema stands."""
    if form is None or form.schema_ is None:
        raise ApiError(400, f"{param}: expected a JSON schema", param)
    options = {"strict": bool(form.strict), "name": param}
    return Constraint(param, "json_schema", (form.schema_,), options)


def json_constraint(param, schema):
    if schema is None:
        return []
    if isinstance(schema, str):
        if len(schema) > MAX_SCHEMA_CHARACTERS:
            most = MAX_SCHEMA_CHARACTERS
            message = f"{param}: expected at most {most} characters, got {len(schema)}"
            raise ApiError(400, message, param)
        check_texts([schema], f"the JSON in {param}")
        try:
            schema = orjson.loads(schema)
        except ValueError as error:
            raise ApiError(400, f"{param}: invalid JSON: {error}", param) from error
    return [Constraint(param, "json_schema", (schema,), {"name": param})]


def text_constraints(place, fields):
    """Return what fields ask for whose names begin with the last word of a place."""
    found = []
    for method in EXACT_METHODS:
        value = getattr(fields, f"{place.rpartition('.')[2]}{method}")
        if value is not None:
            param = f"{place}{method}"
            found.append(Constraint(param, method, (value,), {"name": param}))
    return found


def call_constraints(fields, tools):
    """Return what `tool_choice` asks for."""
    chosen = mode_of(fields.tool_choice)
    if chosen in ("auto", "none"):
        return []
    name = chosen.function.name if isinstance(chosen, NamedTool) else None
    return required_calls(tools, name, takes_one=fields.parallel_tool_calls is False)


def chat_constraints(fields, tools):
    """Return what a chat request asks for.

    Where nothing but calls may come, `response_format` has nothing to say.
    """
    required, form = call_constraints(fields, tools), form_constraints(fields)
    if required:
        found = required + [one for one in form if not one.param.startswith(FORMAT)]
    else:
        found = free_constraints(form, tools, takes_one=fields.parallel_tool_calls is False)
    return spaced(fields.structured_outputs, found)


def spaced(outputs, constraints):
    """Return constraints with what the request says of white space."""
    if outputs is None or outputs.disable_any_whitespace is None:
        return constraints
    return [one.spaced(not outputs.disable_any_whitespace) for one in constraints]
