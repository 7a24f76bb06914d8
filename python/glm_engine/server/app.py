"""The application: routers, errors, and the layer that every request passes first."""

from fastapi import FastAPI

from glm_engine.server import errors
from glm_engine.server.anthropic.messages import messages_router
from glm_engine.server.entry import Entry
from glm_engine.server.health import health_router
from glm_engine.server.openai.chat import chat_router
from glm_engine.server.openai.completions import completions_router
from glm_engine.server.openai.listing import models_router
from glm_engine.server.openai.tokens import tokens_router
from glm_engine.server.pages import pages_router
from glm_engine.version import version

ROUTERS = (
    completions_router,
    chat_router,
    models_router,
    messages_router,
    tokens_router,
    health_router,
    pages_router,
)
PAGE = "/"
UNUSED_STATUS = "422"


def create_app(service):
    """Return the ASGI application of a service."""
    app = FastAPI(
        title="glm-engine",
        version=version(),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = service.settings
    errors.register(app, service.settings)
    for make_router in ROUTERS:
        app.include_router(make_router(service))
    description = without_unused(app.openapi())
    app.openapi = lambda: description
    return Entry(app, service, [*description["paths"], PAGE])


def without_unused(description):
    """Leave out FastAPI's own status for wrong fields: here they are 400."""
    for path in description["paths"].values():
        for operation in path.values():
            operation["responses"].pop(UNUSED_STATUS, None)
    return description
