"""The application, and what all its endpoints share: engine, tokenizer, limits, counts."""

from codecs import getincrementaldecoder
from functools import partial
from pathlib import Path

from fastapi import FastAPI

from glm_engine.core.acceptance import looks_up
from glm_engine.server.anthropic.messages import messages_router
from glm_engine.server.bridge import EngineBridge
from glm_engine.server.fields import unknown_fields
from glm_engine.server.generation_config import (
    AUTO,
    generation_config_path,
    read_generation_config,
    read_overrides,
    sampling_defaults,
    warn_of_unapplied,
)
from glm_engine.server.grammar_queue import Grammars, make_compiler
from glm_engine.server.guides import Guides
from glm_engine.server.http.admission import AdmissionControl
from glm_engine.server.http.api_errors import register
from glm_engine.server.http.health import health_router
from glm_engine.server.http.json_bodies import JsonReader
from glm_engine.server.http.logs import log
from glm_engine.server.http.metrics import Metrics
from glm_engine.server.http.metrics_page import MetricsPage
from glm_engine.server.http.middleware import Middleware
from glm_engine.server.http.tracing import tracing_of
from glm_engine.server.openai.chat_completions import chat_router
from glm_engine.server.openai.completions import completions_router
from glm_engine.server.openai.model_endpoints import models_router, tokens_router
from glm_engine.server.openai.responses.responses import responses_router
from glm_engine.server.page import pages_router
from glm_engine.server.prompts import PromptEncoder
from glm_engine.text.template import template_of
from glm_engine.version import version

IDS_OF_PART = 16_384
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


class Service:
    """One engine with everything that serving it needs."""

    def __init__(self, settings, engine, tokenizer, model, keys):
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
        self.metrics_page = MetricsPage(self)
        self.admission = AdmissionControl(info["max_batch"] + self.max_queue, settings)
        make = partial(make_compiler, tokenizer, self.vocab_size, self.ending_ids, self.template)
        self.grammars = Grammars(settings, self.admission, make)
        self.streams = set()
        self.jobs = set()

    def spelling(self, token_id):
        """Return a token's bytes."""
        return self.tokenizer.bytes_of(token_id)

    def decode(self, ids, skip_special_tokens=False):
        """Return the text of ids; each of them is looked up once."""
        skipped = self.tokenizer.special_ids if skip_special_tokens else frozenset()
        spelled = {one: b"" if one in skipped else self.spelling(one) for one in set(ids)}
        decoder = getincrementaldecoder("utf-8")("replace")
        parts = [ids[at : at + IDS_OF_PART] for at in range(0, len(ids), IDS_OF_PART)]
        texts = [decoder.decode(b"".join(map(spelled.get, part))) for part in parts]
        return "".join([*texts, decoder.decode(b"", final=True)])

    def cut_off(self, error):
        """End every request, begun streams with this error as their last event."""
        for job in list(self.jobs):
            job.fail(error)
        for stream in list(self.streams):
            stream.break_off_if_writing()
        self.admission.refuse_unanswered()

    def end_processes(self):
        """End the processes that render and compile, and with them what threads wait for."""
        if self.template is not None:
            self.template.close()
        self.grammars.end_processes()

    def is_usable(self):
        return bool(self.engine.info()["is_usable"])


class ModelFiles:
    """What the server reads of a checkpoint's folder beside its weights, or in its place."""

    def __init__(self, tokenizer_dir, max_queue, template_file=None, generation=AUTO, overrides=()):
        """generation: a folder, `auto` or `none`. overrides: fields that win over its file's."""
        folder = Path(tokenizer_dir)
        self.max_queue = max_queue
        self.template = template_of(folder, template_file)
        path = generation_config_path(folder, generation)
        found = read_generation_config(path)
        warn_of_unapplied(path, found, log.warning)
        self.defaults = sampling_defaults(found, read_overrides(dict(overrides)))


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
    register(app, service.settings)
    for make_router in ROUTERS:
        app.include_router(make_router(service))
    return Middleware(app, service, [*app.openapi()["paths"], PAGE])
