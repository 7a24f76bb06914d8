"""What a grammar would have to enforce; without one such a request is refused by name."""

from glm_engine.server.errors import ApiError

FREE_TOOL_CHOICES = (None, "auto", "none")


def check_constraints(fields):
    """Refuse a format or a choice of tools that only a grammar could keep."""
    if fields.response_format and fields.response_format.type != "text":
        kind = fields.response_format.type
        refuse("response_format", f"type {kind!r} is not supported here, only 'text'")
    if fields.tool_choice not in FREE_TOOL_CHOICES:
        refuse("tool_choice", "only 'auto' and 'none' are supported here")


def refuse(param, message):
    raise ApiError(400, f"{param}: {message}", param, "unsupported_value")
