"""What each exception becomes: a status, a form, and never what stands inside."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.server.http import api_errors
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.server_settings import Settings

SECRET = "a path of this machine"


def answer_to(error, path="/v1/completions"):
    app = FastAPI()
    api_errors.register(app, Settings())

    @app.get(path)
    async def fail():
        raise error

    async def ask():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://glm") as client:
            return await client.get(path)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.GLM_INVALID_ARGUMENT, 400),
        (Status.GLM_NOT_SUPPORTED, 400),
        (Status.GLM_OUT_OF_MEMORY, 400),
        (Status.GLM_QUEUE_FULL, 429),
        (Status.GLM_DEVICE_ERROR, 503),
        (Status.GLM_INTERNAL_ERROR, 500),
        (99, 500),
    ],
)
def test_statuses_of_the_engine(status, expected) -> None:
    answer = answer_to(EngineError("engine_submit", status, "what the engine says"))
    assert answer.status_code == expected
    assert "what the engine says" in answer.json()["error"]["message"]
    assert ("retry-after" in answer.headers) == (expected == 429)


def test_bad_input_is_400() -> None:
    answer = answer_to(BadInputError("not a usable value"))
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "not a usable value"


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, RecursionError, MemoryError])
def test_anything_else_says_nothing(kind) -> None:
    answer = answer_to(kind(SECRET))
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text


def test_the_form_depends_on_the_path(monkeypatch) -> None:
    monkeypatch.setitem(
        api_errors.BODIES_BY_PREFIX, "/v1/other", lambda error: {"said": error.detail}
    )
    error = ApiError(404, "no such model", "model", "model_not_found")
    assert answer_to(error, "/v1/other/x").json() == {"said": "no such model"}
    assert answer_to(error).json()["error"]["param"] == "model"
