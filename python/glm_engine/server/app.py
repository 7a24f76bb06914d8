"""The application, and what all its endpoints share: engine, tokenizer, limits, counts."""

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.responses import Response

from glm_engine.core.acceptance import looks_up
from glm_engine.core.layout import PAGE as PAGE_FOLDER
from glm_engine.server.anthropic.messages import messages_router
from glm_engine.server.bridge import EngineBridge
from glm_engine.server.fields import unknown_fields
from glm_engine.server.generation_config import (
    AUTO,
    NO_OVERRIDES,
    generation_config_path,
    read_generation_config,
    read_overrides,
    sampling_defaults,
    warn_of_unapplied,
)
from glm_engine.server.grammar_queue import Grammars, make_compiler
from glm_engine.server.guides import Guides
from glm_engine.server.http.admission import AdmissionControl
from glm_engine.server.http.api_errors import ApiError, register
from glm_engine.server.http.health import health_router
from glm_engine.server.http.json_bodies import JsonReader
from glm_engine.server.http.logs import log
from glm_engine.server.http.metrics import Metrics
from glm_engine.server.http.metrics_page import metrics_page
from glm_engine.server.http.middleware import Middleware
from glm_engine.server.http.tracing import tracing_of
from glm_engine.server.openai.chat_completions import chat_router
from glm_engine.server.openai.completions import completions_router
from glm_engine.server.openai.model_endpoints import models_router, tokens_router
from glm_engine.server.openai.responses.responses import responses_router
from glm_engine.server.prompts import PromptEncoder
from glm_engine.text.template import template_of
from glm_engine.version import version

if TYPE_CHECKING:
    from glm_engine.core.engine import Engine
    from glm_engine.server.http.auth import KeyRing
    from glm_engine.server.http.streaming import JobResponse
    from glm_engine.server.jobs import Job
    from glm_engine.server.server_settings import Settings
    from glm_engine.text.tokenizer import GlmTokenizer


IDS_OF_PART = 16_384
PAGE = "/"
INDEX = "index.html"
MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


class Service:
    """One engine with everything that serving it needs."""

    def __init__(
        self,
        settings: "Settings",
        engine: "Engine",
        tokenizer: "GlmTokenizer",
        model: "ModelFiles",
        keys: "KeyRing",
    ) -> None:
        info = engine.info()
        self.settings = settings
        self.engine = engine
        self.tokenizer = tokenizer
        self.model_names = settings.model_names
        self.model_name = settings.model_names[0]
        self.max_seq = info["max_seq"]
        self.vocab_size = info["vocab_size"]
        self.looks_up = looks_up(info)
        self.max_queue = model.max_queue
        self.template = model.template
        self.ending_ids = frozenset(info["eos_tokens"])
        self.defaults = model.defaults
        self.keys = keys
        self.guides = Guides(engine, info["max_draft_tokens"])
        self.bridge = EngineBridge(engine, self.guides)
        self.encoder = PromptEncoder(tokenizer, self.max_seq, settings)
        self.tracing = tracing_of(self.model_name)
        self.metrics = Metrics()
        self.metrics_page = metrics_page(self)
        self.admission = AdmissionControl(info["max_batch"] + self.max_queue, settings)
        make = partial(make_compiler, tokenizer, self.vocab_size, self.ending_ids, self.template)
        self.grammars = Grammars(settings, self.admission, make)
        self.streams: set[JobResponse] = set()
        self.jobs: set[Job] = set()

    def spelling(self, token_id: int) -> bytes:
        """Return a token's bytes."""
        return self.tokenizer.bytes_of(token_id)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of ids; each of them is looked up once."""
        skipped = self.tokenizer.special_ids if skip_special_tokens else frozenset()
        spelled = {one: b"" if one in skipped else self.spelling(one) for one in set(ids)}
        decoder = getincrementaldecoder("utf-8")("replace")
        parts = [ids[at : at + IDS_OF_PART] for at in range(0, len(ids), IDS_OF_PART)]
        texts = [decoder.decode(b"".join(map(spelled.__getitem__, part))) for part in parts]
        return "".join([*texts, decoder.decode(b"", final=True)])

    def cut_off(self, error: ApiError) -> None:
        """End every request, begun streams with this error as their last event."""
        for job in list(self.jobs):
            job.fail(error)
        for stream in list(self.streams):
            stream.break_off_if_writing()
        self.admission.refuse_unanswered()

    def end_processes(self) -> None:
        """End the processes that render and compile, and with them what threads wait for."""
        if self.template is not None:
            self.template.close()
        self.grammars.end_processes()

    def close(self) -> None:
        """Let go of the engine and end all threads, once nobody is answered any more."""
        for part in (self.bridge, self.encoder, self.grammars, self.guides):
            part.close()

    def is_usable(self) -> bool:
        return bool(self.engine.info()["is_usable"])


class ModelFiles:
    """What the server reads of a checkpoint's folder beside its weights, or in its place."""

    def __init__(
        self,
        tokenizer_dir: str | Path,
        max_queue: int,
        template_file: str | Path | None = None,
        generation: str = AUTO,
        overrides: Mapping[str, Any] = NO_OVERRIDES,
    ) -> None:
        """generation: a folder, `auto` or `none`. overrides: fields that win over its file's."""
        folder = Path(tokenizer_dir)
        self.max_queue = max_queue
        self.template = template_of(folder, template_file)
        path = generation_config_path(folder, generation)
        found = read_generation_config(path)
        warn_of_unapplied(path, found, log.warning)
        self.defaults = sampling_defaults(found, read_overrides(dict(overrides)))


def page_files() -> dict[str, tuple[bytes, str]]:
    """Return the page's files by path, as (bytes, media type)."""
    found = [path for path in sorted(PAGE_FOLDER.rglob("*")) if path.suffix in MEDIA_TYPES]
    return {
        path.relative_to(PAGE_FOLDER).as_posix(): (path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in found
    }


def pages_router(_service: Service) -> APIRouter:
    router = APIRouter(include_in_schema=False)
    files = page_files()

    def show(name: str) -> Response:
        if name not in files:
            raise ApiError(404, f"file not found: {name!r}")
        content, media_type = files[name]
        return Response(content, media_type=media_type, headers=PAGE_HEADERS)

    @router.get("/")
    async def show_index() -> Response:
        return show(INDEX)

    @router.get("/page/{name:path}")
    async def show_file(name: str) -> Response:
        return show(name)

    return router


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


def create_app(service: Service) -> Middleware:
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
    register(app, service.settings)
    routers = [make_router(service) for make_router in ROUTERS]
    for router in routers:
        app.include_router(router)
    return Middleware(app, service, [*endpoints(routers), PAGE])


def endpoints(routers: Iterable[APIRouter]) -> Iterator[str]:
    """Yield the paths that /openapi.json describes; its schema is first made when it is asked."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                yield route.path_format
