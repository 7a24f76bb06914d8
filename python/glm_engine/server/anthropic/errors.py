"""Errors in Anthropic's form."""

from typing import Any, Literal

from pydantic import BaseModel

from glm_engine.server.errors import STATUSES, TooLongError

PREFIX = "/v1/messages"
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


THREAD = "thread"
UNTHREADED = {"error_code": "thread_unsupported_request", "unsupported": [THREAD]}


class ErrorDetail(BaseModel):
    type: str
    message: str
    details: dict[str, Any] | None = None


class ErrorAnswer(BaseModel):
    type: Literal["error"]
    error: ErrorDetail


RESPONSES = {
    status: {"description": text, "model": ErrorAnswer} for status, text in STATUSES.items()
}


def message_of(error):
    """Return the message; clients read two numbers in that of a prompt which is too long."""
    if not isinstance(error, TooLongError):
        return error.detail
    numbers = f"{error.num_tokens} tokens > {error.most_tokens} maximum"
    least = "" if error.is_counted else " (at least, by its number of characters)"
    return f"prompt is too long: {numbers}{least}"


def anthropic_body(error):
    """Return the body of an error.

    Clients look in `details` for what tells them to send a whole conversation in place of a thread
    that the server holds.
    """
    kind = TYPES.get(error.status_code, "invalid_request_error")
    told = {"type": kind, "message": message_of(error)}
    if error.param == THREAD:
        told["details"] = UNTHREADED
    return {"type": "error", "error": told}
