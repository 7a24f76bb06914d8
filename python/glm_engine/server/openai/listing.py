"""GET /v1/models, in a form that OpenAI's and Anthropic's clients read."""

import time
from datetime import UTC, datetime

from fastapi import APIRouter
from starlette.responses import JSONResponse

from glm_engine.server.openai.answers import RESPONSES
from glm_engine.server.requests import check_model

OWNER = "glm-engine"


def card_of(service, name, began):
    """Return what is said of the model under one of its names; `began` is Unix seconds."""
    return {
        "id": name,
        "object": "model",
        "created": began,
        "owned_by": OWNER,
        "root": service.model_name,
        "max_model_len": service.max_seq,
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(began, UTC).isoformat(),
    }


def models_router(service):
    router = APIRouter(responses=RESPONSES, tags=["OpenAI"])
    began = int(time.time())
    names = service.model_names
    cards = {name: card_of(service, name, began) for name in names}
    pages = {"has_more": False, "first_id": names[0], "last_id": names[-1]}

    @router.get("/v1/models")
    async def list_models():
        """List the one model of this server under each of its names."""
        return JSONResponse({"object": "list", "data": list(cards.values()), **pages})

    @router.get("/v1/models/{name:path}")
    async def show_model(name: str):
        """Describe a model."""
        check_model(service, name)
        return JSONResponse(cards[name or names[0]])

    return router
