"""POST /tokenize and /detokenize, in vLLM's form."""

import orjson
from fastapi import APIRouter
from starlette.responses import Response

from glm_engine.server.errors import ApiError
from glm_engine.server.fields import StrictModel, TokenId, list_of
from glm_engine.server.limits import JsonRoute
from glm_engine.server.openai.answers import RESPONSES
from glm_engine.server.openai.chat_fields import ConversationFields
from glm_engine.server.openai.conversation import render
from glm_engine.server.openai.messages import Messages, template_tools
from glm_engine.server.requests import check_model

MAX_IDS = 2**20


class TokenizeRequest(ConversationFields):
    """A text, or messages to render first."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = False


class DetokenizeRequest(StrictModel):
    model: str | None = None
    tokens: list_of(TokenId, MAX_IDS)
    skip_special_tokens: bool | None = False


async def tokenized(service, fields):
    if (fields.prompt is None) == (fields.messages is None):
        raise ApiError(400, "expected either prompt or messages", "prompt")
    if fields.messages is None:
        adds = fields.add_special_tokens is not False
        return await service.encoder.encode(fields.prompt, adds)
    text = await render(service, fields, template_tools(fields.tools))
    adds = bool(fields.add_special_tokens)
    return await service.encoder.encode(text, adds, param="messages")


def tokens_body(service, fields, ids):
    answer = {"count": len(ids), "max_model_len": service.max_seq, "tokens": ids}
    if fields.return_token_strs:
        answer["token_strs"] = [service.spelling(one).decode("utf-8", "replace") for one in ids]
    return orjson.dumps(answer)


def tokens_router(service):
    router = APIRouter(route_class=JsonRoute, responses=RESPONSES, tags=["tokens"])

    @router.post("/tokenize")
    async def tokenize(fields: TokenizeRequest):
        """Return the token ids of a text or of a rendered conversation."""
        check_model(service, fields.model)
        ids = await tokenized(service, fields)
        body = await service.encoder.apart(len(ids), tokens_body, service, fields, ids)
        return Response(body, media_type="application/json")

    @router.post("/detokenize")
    async def detokenize(fields: DetokenizeRequest):
        """Return the text of token ids."""
        check_model(service, fields.model)
        arguments = (service.decode, fields.tokens, fields.skip_special_tokens)
        text = await service.encoder.apart(len(fields.tokens), *arguments)
        return Response(orjson.dumps({"prompt": text}), media_type="application/json")

    return router
