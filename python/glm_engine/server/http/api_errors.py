"""Errors as a client sees them: a status, OpenAI's form, never a stack trace."""

import re
import reprlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from glm_engine.core.checks import FieldError
from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.server.http.request_record import shortened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from glm_engine.core.bounded_process import NoAnswerError
    from glm_engine.server.http.request_record import RequestRecord
    from glm_engine.server.server_settings import Settings


log = structlog.get_logger("server")
INDEX = re.compile(r"\[(\d+)\]")
CLIENT_CLOSED_REQUEST = 499
MAX_MESSAGE_CHARACTERS = 2048
MAX_PARAM_CHARACTERS = 256
MAX_VALUE_CHARACTERS = 512
JSON_WORDS: dict[object, str] = {None: "null", True: "true", False: "false"}
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
RETRY = {"retry-after": "5"}
NO_RETRY = {"x-should-retry": "false"}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}
STATUSES = {
    400: "The request is invalid; `param` names the field.",
    401: "The API key is missing or incorrect.",
    404: "The model does not exist.",
    408: "The request body arrived too slowly, or the request timed out.",
    413: "The request body is too large.",
    415: "The content type is not application/json.",
    422: "The checkpoint has no chat template.",
    429: "The queue is full; retry after the number of seconds in Retry-After.",
    500: "The engine failed to run this request.",
    503: "The server is shutting down, or the engine has failed.",
}
ENGINE_STATUSES: dict[int, int] = {
    Status.GLM_INVALID_ARGUMENT: 400,
    Status.GLM_NOT_SUPPORTED: 400,
    Status.GLM_OUT_OF_MEMORY: 400,
    Status.GLM_QUEUE_FULL: 429,
    Status.GLM_DEVICE_ERROR: 503,
}


class ApiError(HTTPException):
    """What the client is told; `param` is the path of a field of its request."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, shortened(message, MAX_MESSAGE_CHARACTERS), headers)
        self.param = param and shortened(param, MAX_PARAM_CHARACTERS)
        self.code = code

    @property
    def kind(self) -> str:
        other = "invalid_request_error" if self.status_code < 500 else "server_error"
        return TYPES.get(self.status_code, other)

    def as_dict(self) -> dict[str, str | None]:
        return {
            "message": self.detail,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }


class TooLongError(ApiError):
    """A prompt of more than `most_tokens`; is_counted: `num_tokens` is not just the least."""

    def __init__(
        self, message: str, param: str, num_tokens: int, most_tokens: int, is_counted: bool
    ) -> None:
        super().__init__(400, message, param, CONTEXT_LENGTH_EXCEEDED)
        self.num_tokens = num_tokens
        self.most_tokens = most_tokens
        self.is_counted = is_counted


def quoted(value: object) -> str:
    """Return a value that a client wrote as a message shows it, cut where it is long."""
    if isinstance(value, str):
        return repr(shortened(value, MAX_VALUE_CHARACTERS))
    return reprlib.repr(value)


def received(value: object) -> str:
    """Return a value of JSON as a message shows it: a short text or number, else its kind."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    is_word = value is None or isinstance(value, bool)
    return JSON_WORDS[value] if is_word else reprlib.repr(value)


def openai_body(error: ApiError) -> dict[str, Any]:
    return {"error": error.as_dict()}


BODIES_BY_PREFIX = {"": openai_body}


def body_of(error: ApiError, path: str) -> bytes:
    """Return the JSON bytes of an error in the form that clients of this path expect."""
    prefix = max((one for one in BODIES_BY_PREFIX if path.startswith(one)), key=len)
    return orjson.dumps(BODIES_BY_PREFIX[prefix](error))


def response_of(error: ApiError, path: str) -> Response:
    body = body_of(error, path)
    return Response(body, error.status_code, error.headers, "application/json")


def answer_of(error: ApiError, scope: Scope) -> Response:
    """Return the response to a request that is refused, and note the reason for its log line."""
    if record := scope.get("record"):
        record.reason = error.detail
    return response_of(error, scope["path"])


def of_engine(error: EngineError, settings: "Settings") -> ApiError:
    """Turn a refusal of the engine into what the client is told."""
    status = ENGINE_STATUSES.get(error.status, 500)
    if status == 429:
        retry = {"retry-after": str(settings.retry_after_seconds)}
        return ApiError(429, f"the queue is full: {error}", code="queue_full", headers=retry)
    if error.status == Status.GLM_OUT_OF_MEMORY:
        return ApiError(400, str(error), code=CONTEXT_LENGTH_EXCEEDED)
    return ApiError(status, str(error), code=getattr(error.status, "name", None))


def of_no_answer(error: "NoAnswerError") -> ApiError:
    """Turn the end or the silence of a process that was asked into what the client is told."""
    return ApiError(503, str(error), code="no_answer", headers=RETRY)


def of_bad_input(error: BadInputError, param: str | None = None) -> ApiError:
    """Turn what is wrong with a request into what the client is told: `a.0.b` for `a[0].b`."""
    if not isinstance(error, FieldError):
        return ApiError(400, str(error), param)
    path = INDEX.sub(r".\1", error.place)
    return ApiError(400, f"{path}: {error.problem}", path)


@contextmanager
def named_fields() -> Iterator[None]:
    """Raise ApiError for a FieldError."""
    try:
        yield
    except FieldError as error:
        raise of_bad_input(error) from error


def of_http(error: HTTPException) -> ApiError:
    """Give Starlette's own errors (no such route, wrong method) the same form."""
    if isinstance(error, ApiError):
        return error
    detail = str(error.detail or HTTPStatus(error.status_code).phrase)
    return ApiError(error.status_code, detail, headers=error.headers)


def register(app: "FastAPI", settings: "Settings") -> None:
    """Give every exception that a handler may raise its answer."""
    from fastapi.exceptions import RequestValidationError

    from glm_engine.server.fields import of_validation

    def handler_of(
        convert: Callable[[Any], ApiError],
    ) -> Callable[[Request, Exception], Awaitable[Response]]:
        async def handle(request: Request, error: Exception) -> Response:
            return answer_of(convert(error), request.scope)

        return handle

    conversions: dict[type[Exception], Callable[[Any], ApiError]] = {
        RequestValidationError: of_validation,
        HTTPException: of_http,
        BadInputError: of_bad_input,
        EngineError: lambda error: of_engine(error, settings),
    }
    for kind, convert in conversions.items():
        app.add_exception_handler(kind, handler_of(convert))
    app.add_exception_handler(Exception, answer_unexpected)


def of_unexpected(error: Exception, record: "RequestRecord | None") -> ApiError:
    """Say no more than that it happened; the log has the rest, under the same request_id."""
    request_id = record.request_id if record else None
    log.error("unexpected error", request_id=request_id, exc_info=error)
    message = f"internal server error; see request {request_id} in the server log"
    return ApiError(500, message, code="internal_error")


async def answer_unexpected(request: Request, error: Exception) -> Response:
    return answer_of(of_unexpected(error, request.scope.get("record")), request.scope)


class DisconnectedError(Exception):
    """The client has gone; nobody reads the answer any more."""
