"""What the OpenAPI description says of answers: the form of an error, the statuses."""

from pydantic import BaseModel


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    error: ErrorDetail


STATUSES = {
    400: "A value, a length or the body itself is wrong; `param` names the field.",
    401: "No API key, or one that is not known.",
    404: "No such model.",
    408: "The body came too slowly, or the request's deadline passed.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "The request is well formed, but the checkpoint's chat template cannot render it.",
    429: "The queue is full; try again after Retry-After seconds.",
    500: "The engine failed this request.",
    503: "The server is shutting down, or the engine is lost.",
}
RESPONSES = {
    status: {"description": text, "model": ErrorAnswer} for status, text in STATUSES.items()
}
