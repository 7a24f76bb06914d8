"""GET /v1/models."""

import time

from fastapi import APIRouter
from starlette.responses import JSONResponse

from glm_engine.server.openai.answers import RESPONSES
from glm_engine.server.openai.requests import check_model

OWNER = "glm-engine"


def models_router(service):
    router = APIRouter(responses=RESPONSES, tags=["OpenAI"])
    card = {
        "id": service.model_name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": OWNER,
        "max_model_len": service.max_seq,
    }

    @router.get("/v1/models")
    async def list_models():
        """List the one model of this server."""
        return JSONResponse({"object": "list", "data": [card]})

    @router.get("/v1/models/{name:path}")
    async def show_model(name: str):
        """Describe a model."""
        check_model(service, name)
        return JSONResponse(card)

    return router
