"""The application: routers, errors, and the layer that every request passes first."""

from fastapi import FastAPI

from glm_engine.server import errors
from glm_engine.server.anthropic.messages import messages_router
from glm_engine.server.entry import Entry
from glm_engine.server.fields import unknown_fields
from glm_engine.server.health import health_router
from glm_engine.server.limits import JsonReader
from glm_engine.server.openai.chat import chat_router
from glm_engine.server.openai.completions import completions_router
from glm_engine.server.openai.listing import models_router
from glm_engine.server.openai.responses.responses import responses_router
from glm_engine.server.openai.tokens import tokens_router
from glm_engine.server.pages import pages_router
from glm_engine.version import version

ROUTERS = (
    completions_router,
    chat_router,
    responses_router,
    models_router,
    messages_router,
    tokens_router,
    health_router,
    pages_router,
)
PAGE = "/"


def create_app(service):
    """Return the ASGI application of a service."""
    app = FastAPI(
        title="glm-engine",
        version=version(),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    unknown_fields.are_refused = service.settings.strict_fields
    app.state.json_reader = JsonReader(service.settings)
    errors.register(app, service.settings)
    for make_router in ROUTERS:
        app.include_router(make_router(service))
    return Entry(app, service, [*app.openapi()["paths"], PAGE])
