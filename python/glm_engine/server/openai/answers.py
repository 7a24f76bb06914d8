"""What the OpenAPI description says of answers: the form of an error."""

from pydantic import BaseModel

from glm_engine.server.errors import STATUSES


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    error: ErrorDetail


RESPONSES = {
    status: {"description": text, "model": ErrorAnswer} for status, text in STATUSES.items()
}
