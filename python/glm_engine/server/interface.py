"""What interfaces and the server agree on."""

from dataclasses import dataclass, field, replace

from glm_engine.server.http.api_errors import ApiError

JSON_METHODS = ("json_object", "json_schema")
EXACT_METHODS = ("regex", "choice", "grammar")
CALL_METHODS = ("tool_calls", "calls_or_document")


@dataclass(frozen=True)
class Constraint:
    """A call of the compiler: what `param` of the request asks for."""

    param: str
    method: str
    arguments: tuple = ()
    options: dict = field(default_factory=dict)

    def spaced(self, any_whitespace):
        """Return it with a word on the white space of its JSON, unless it has one or no JSON."""
        if self.method in EXACT_METHODS:
            return self
        return replace(self, options={"any_whitespace": any_whitespace, **self.options})


def required_calls(tools, name, takes_one):
    """Return the constraint under which nothing but calls may come; a named tool is called once."""
    if not tools:
        raise ApiError(400, "tool_choice: expected at least one tool in tools", "tool_choice")
    options = {"name": name, "at_most": 1 if takes_one or name is not None else None}
    return [Constraint("tool_choice", "tool_calls", (tools,), options)]


def free_constraints(form, tools, takes_one):
    """Return what holds where no call is required; JSON may come instead of calls.

    Tools that say `strict` are held to their schemas where the model calls them unasked, too.
    """
    at_most = 1 if takes_one else None
    if not form and any(tool["function"].get("strict") for tool in tools):
        return [Constraint("tools", "tool_calls", (tools,), {"at_least": 0, "at_most": at_most})]
    return [calls_or(one, tools, at_most) for one in form]


def calls_or(form, tools, at_most):
    """Return the constraint of calls or, in their place, a document; without tools, of it alone."""
    if not tools or form.method not in JSON_METHODS:
        return form
    schema = form.arguments or ({"type": "object"},)
    options = {**form.options, "at_most": at_most}
    return Constraint(form.param, "calls_or_document", (tools, *schema), options)
