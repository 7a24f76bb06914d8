"""`glm serve`: OpenAI's HTTP interface over one engine."""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glm_engine.bench.costs import SYNTHETIC, config_of
from glm_engine.cli import options
from glm_engine.commands.serve_options import (
    DEFAULT_MAX_QUEUE,
    default_template_variables,
    server_options,
)
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import CAPITALS
from glm_engine.hub.names import name_of_folder, tokenizer_of
from glm_engine.server.server_settings import Settings

if TYPE_CHECKING:
    from glm_engine.core.requests import EngineOptions
    from glm_engine.server.app import Service
    from glm_engine.server.http.auth import KeyRing
    from glm_engine.server.http.middleware import Middleware
    from glm_engine.server.kv_events import KvEventPublisher

SHOWN_FOR_UNKNOWN = "\ufffd".encode()


@options.command("serve")
@options.model_or_synthetic
@options.TOKENIZER
@options.model_option(
    "--served-model-name",
    "served_names",
    multiple=True,
    show_default="ORG/NAME, or the folder's name",
    help="Model name in the API (repeatable).",
)
@server_options
@options.engine_options
def command(
    model_dir: str | None,
    synthetic: str | None,
    tokenizer_dir: str | None,
    served_names: tuple[str, ...],
    **values: Any,
) -> int:
    """Serve a model over an OpenAI- and Anthropic-compatible HTTP API.

    On SIGTERM, SIGHUP or Ctrl-C, the server gives running requests up to --drain-seconds to
    finish, then exits.
    """
    from glm_engine.server.http import lifecycle, logs

    engine_values = values.pop("engine_values")
    max_queue = values.pop("max_queue")
    shape = {name: values.pop(name) for name in ("num_layers", "acceptance_length")}
    stated_keys = values.pop("api_keys"), values.pop("api_key_file")
    defaults = request_defaults(values)
    settings = Settings(**values)
    is_published = wants_kv_events(settings, engine_values["prefix_cache"])
    logs.configure(settings.log_level, settings.log_format)
    keys = key_ring(*stated_keys)
    with lifecycle.bind(settings) as listener, kv_event_publisher(settings) as publisher:
        source, chosen = chosen_engine(model_dir, synthetic, engine_values, max_queue, **shape)
        chosen.kv_events = is_published
        settings = replace(settings, model_names=names_of(served_names, source))
        folder = tokenizer_of(tokenizer_dir, str(CAPITALS) if synthetic else source)
        return run(settings, chosen, folder, defaults, keys, listener, publisher)


def key_ring(api_keys: tuple[str, ...], api_key_file: str | None) -> "KeyRing":
    """Return the accepted keys, and warn of those that others can see."""
    from glm_engine.server.http import logs
    from glm_engine.server.http.auth import OPTION, KeyRing

    source = options.source_of("api_keys")
    if api_keys and source == OPTION:
        logs.log.warning(
            "other users on this machine can read --api-key in the process list; "
            "use --api-key-file or GLM_API_KEYS instead"
        )
    return KeyRing(api_key_file, keys=api_keys, source_of_keys=source or OPTION)


def request_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Take the defaults of requests out of the options; the template's variables stay."""
    values["template_variables"] = default_template_variables(
        values["template_variables"] or {}, values.pop("thinking"), values.pop("reasoning_budget")
    )
    return {
        "template_file": values.pop("template_file"),
        "generation": values.pop("generation_config"),
        "overrides": values.pop("sampling_overrides") or {},
    }


def wants_kv_events(settings: Settings, prefix_cache: bool | None) -> bool:
    """Say whether to publish events of the prefix cache; BadInputError where there can be none."""
    if settings.kv_events and prefix_cache is False:
        raise BadInputError("--kv-events needs the prefix cache: remove --no-prefix-cache")
    for name in ("kv-events-replay", "kv-events-topic"):
        if getattr(settings, name.replace("-", "_")) and not settings.kv_events:
            raise BadInputError(f"--{name} needs --kv-events")
    return bool(settings.kv_events)


def kv_event_publisher(settings: Settings) -> "AbstractContextManager[KvEventPublisher | None]":
    """Return the publisher with its sockets bound; a context of None without --kv-events."""
    if not settings.kv_events:
        return contextlib.nullcontext()
    from glm_engine.server.kv_events import KvEventPublisher

    return KvEventPublisher(settings)


def chosen_engine(
    model_dir: str | None,
    synthetic: str | None,
    engine_values: Mapping[str, Any],
    max_queue: int = DEFAULT_MAX_QUEUE,
    **shape: Any,
) -> tuple[str, "EngineOptions"]:
    """Return what is served, and the engine's options for it.

    shape: `num_layers` and `acceptance_length` of a synthetic model.
    """
    source, config = config_of(model_dir, synthetic)
    chosen = options.make_engine_options(
        str(config) if synthetic else source,
        engine_values,
        synthetic=bool(synthetic),
        max_queue=max_queue,
        **shape,
    )
    return source, chosen


def names_of(served_names: tuple[str, ...], source: str) -> tuple[str, ...]:
    """Return the names in requests, each once; answers carry the first."""
    return tuple(dict.fromkeys(served_names)) or (name_of(source),)


def name_of(source: str) -> str:
    """Return the name of a model that was pulled, of a folder, or of a synthetic model."""
    if source in SYNTHETIC:
        return source
    path = Path(source)
    return name_of_folder(path.parent if path.is_file() else path)


@contextlib.contextmanager
def opened_service(
    settings: Settings,
    chosen: "EngineOptions",
    tokenizer_dir: str,
    defaults: Mapping[str, Any],
    keys: "KeyRing",
) -> Iterator[tuple["Middleware", "Service"]]:
    """Give the application and its service, with the engine loaded until the block ends."""
    from glm_engine.core.loading import load_engine
    from glm_engine.server.app import ModelFiles, Service, create_app
    from glm_engine.server.http import logs
    from glm_engine.text.tokenizer import GlmTokenizer

    tokenizer = GlmTokenizer(tokenizer_dir, SHOWN_FOR_UNKNOWN if chosen.synthetic else b"")
    assert chosen.max_queue is not None
    model = ModelFiles(tokenizer_dir, chosen.max_queue, **defaults)
    engine, _ = load_engine(chosen, warn=logs.log.warning, inform=logs.log.info)
    with engine:
        service = Service(settings, engine, tokenizer, model, keys)
        yield create_app(service), service


def chosen_service(
    model_dir: str | None,
    tokenizer_dir: str | None,
    served_names: tuple[str, ...],
    engine_values: dict[str, Any],
) -> AbstractContextManager[tuple["Middleware", "Service"]]:
    """Give the application of a model and its service, for requests of this process alone."""
    from glm_engine.server.http import logs
    from glm_engine.server.http.auth import KeyRing

    settings = Settings(log_level="error")
    logs.configure(settings.log_level, settings.log_format)
    source, chosen = chosen_engine(model_dir, None, engine_values)
    settings = replace(settings, model_names=names_of(served_names, source))
    folder = tokenizer_of(tokenizer_dir, source)
    return opened_service(settings, chosen, folder, {}, KeyRing(environment={}))


def run(
    settings: Settings,
    chosen: "EngineOptions",
    tokenizer_dir: str,
    defaults: Mapping[str, Any],
    keys: "KeyRing",
    listener: socket.socket,
    publisher: "KvEventPublisher | None",
) -> int:
    from glm_engine.server.http.lifecycle import serve

    opened = opened_service(settings, chosen, tokenizer_dir, defaults, keys)
    with opened as (app, service), contextlib.ExitStack() as stack:
        if publisher:
            stack.enter_context(publisher.following(service.engine))
        return serve(app, service, listener)
