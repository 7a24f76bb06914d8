"""GET /v1/models, POST /tokenize and /detokenize."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from glm_engine.server.fields import StrictModel, TokenId, items
from glm_engine.server.http.api_errors import STATUSES, ApiError
from glm_engine.server.http.middleware import JsonRoute
from glm_engine.server.jobs import check_model
from glm_engine.server.openai.chat_messages import (
    Messages,
    RenderingFields,
    chat_prompt,
    template_tools,
)
from glm_engine.server.prompts import rendered

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.text.conversation import Json

OWNER = "glm-engine"
MAX_IDS = 2**20


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    error: ErrorDetail


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "model": ErrorAnswer} for status, text in STATUSES.items()
}


def card_of(service: "Service", name: str, began: int) -> "Json":
    """Return what is said of the model under one of its names; `began` is Unix seconds."""
    return {
        "id": name,
        "object": "model",
        "created": began,
        "owned_by": OWNER,
        "root": service.model_name,
        "max_model_len": service.max_seq,
        "default_sampling_params": service.defaults,
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(began, UTC).isoformat(),
    }


def models_router(service: "Service") -> APIRouter:
    router = APIRouter(responses=RESPONSES, tags=["OpenAI"])
    began = int(time.time())
    names = service.model_names
    cards = {name: card_of(service, name, began) for name in names}
    pages = {"has_more": False, "first_id": names[0], "last_id": names[-1]}

    @router.get("/v1/models")
    async def list_models() -> Response:
        """List the one model of this server under each of its names."""
        return JSONResponse({"object": "list", "data": list(cards.values()), **pages})

    @router.get("/v1/models/{name:path}")
    async def show_model(name: str) -> Response:
        """Describe a model."""
        check_model(service, name)
        return JSONResponse(cards[name or names[0]])

    return router


class OptionalMessages(StrictModel):
    messages: Messages | None = None


class TokenizeRequest(RenderingFields, OptionalMessages):
    """A text, or messages to render first."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = False


class DetokenizeRequest(StrictModel):
    model: str | None = None
    tokens: Annotated[list[TokenId], items(MAX_IDS)]
    skip_special_tokens: bool | None = False


async def tokenized(service: "Service", fields: TokenizeRequest) -> list[int]:
    if (fields.prompt is None) == (fields.messages is None):
        raise ApiError(400, "expected either prompt or messages", "prompt")
    if fields.messages is None:
        adds = fields.add_special_tokens is not False
        return await service.encoder.encode(fields.prompt or "", adds)
    prompt = await chat_prompt(service, fields, fields.messages, template_tools(fields.tools))
    text = await rendered(service, prompt)
    adds = bool(fields.add_special_tokens)
    return await service.encoder.encode(text, adds, param="messages")


def tokens_body(service: "Service", fields: TokenizeRequest, ids: Sequence[int]) -> bytes:
    answer = {"count": len(ids), "max_model_len": service.max_seq, "tokens": ids}
    if fields.return_token_strs:
        answer["token_strs"] = [service.spelling(one).decode("utf-8", "replace") for one in ids]
    return orjson.dumps(answer)


def tokens_router(service: "Service") -> APIRouter:
    router = APIRouter(route_class=JsonRoute, responses=RESPONSES, tags=["tokens"])

    @router.post("/tokenize")
    async def tokenize(fields: TokenizeRequest) -> Response:
        """Return the token ids of a text or of a rendered conversation."""
        check_model(service, fields.model)
        ids = await tokenized(service, fields)
        body = await service.encoder.apart(len(ids), tokens_body, service, fields, ids)
        return Response(body, media_type="application/json")

    @router.post("/detokenize")
    async def detokenize(fields: DetokenizeRequest) -> Response:
        """Return the text of token ids."""
        check_model(service, fields.model)
        ids, skips = fields.tokens, bool(fields.skip_special_tokens)
        text = await service.encoder.apart(len(ids), service.decode, ids, skips)
        return Response(orjson.dumps({"prompt": text}), media_type="application/json")

    return router
