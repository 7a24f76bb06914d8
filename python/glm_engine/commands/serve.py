"""`glm serve`: OpenAI's HTTP interface over one engine."""

import contextlib
import functools
import re
from pathlib import Path

import click

from glm_engine import options
from glm_engine.bench.costs import SYNTHETIC, config_of
from glm_engine.errors import BadInputError
from glm_engine.hub.names import name_of_folder, tokenizer_of
from glm_engine.server.settings import Settings

LOG_LEVELS = ("debug", "info", "warning", "error")
DAY = 86_400
SECONDS = options.Finite(0, DAY)
POSITIVE_SECONDS = options.Finite(0, DAY, min_open=True)
DEFAULT_MAX_QUEUE = 1024
SHOWN_FOR_UNKNOWN = "\ufffd".encode()
server_option = options.grouped("Server")
KV_EVENTS_ENDPOINT, REPLAY_ENDPOINT = "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"


def setting(flag, name, kind, help_text, group="Server", shown=True):
    """Return an option whose default is that of `Settings`; bytes are shown in MiB."""
    default = getattr(Settings, name)
    if isinstance(kind, options.ByteSize):
        shown = f"{default >> 20}MiB"
    option = options.grouped(group)
    return option(flag, name, type=kind, default=default, show_default=shown, help=help_text)


limit = functools.partial(setting, group="Limits")


class Endpoint(click.ParamType):
    """An address of ZeroMQ to bind: tcp://HOST:PORT, where * is every address."""

    name = "tcp://HOST:PORT"
    form = re.compile(r"tcp://(?:\*|[^][:*/\s]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")

    def convert(self, value, param, ctx):
        found = self.form.fullmatch(value)
        if not found or int(found[1]) > 65535:
            self.fail(f"{value!r} is not such as {KV_EVENTS_ENDPOINT}", param, ctx)
        return value


class Origin(click.ParamType):
    """An origin of pages, as browsers send it: SCHEME://HOST[:PORT], null, or * for all."""

    name = "origin"
    form = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@,]+")

    def convert(self, value, param, ctx):
        if not self.form.fullmatch(value):
            self.fail(f"{value!r} is not such as https://chat.home.org or *", param, ctx)
        return value


@options.command("serve")
@options.model_or_synthetic
@options.TOKENIZER
@options.model_option(
    "--served-model-name",
    "served_names",
    multiple=True,
    show_default="ORG/NAME, or the folder's",
    help="The model's name in requests; repeat it for others.",
)
@setting("--host", "host", str, "Address to listen on.")
@server_option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    show_default="any, but none on the loopback without keys",
    help="A name by which clients may ask, beside localhost and addresses; * for any.",
)
@server_option(
    "--allowed-origin",
    "allowed_origins",
    type=Origin(),
    multiple=True,
    show_default="none",
    help="An origin whose pages may ask and read answers (CORS); repeat it, or * for any.",
)
@setting("--port", "port", options.Whole(0, 65535), "0: any free.")
@server_option(
    "--api-key-file",
    type=click.Path(),
    show_default="no keys",
    help="A key, sha256:HEX of one, or # a note on a line; GLM_API_KEYS adds.",
)
@server_option(
    "--max-queue",
    type=options.POSITIVE,
    default=DEFAULT_MAX_QUEUE,
    help="Requests that wait at most; more are refused with 429.",
)
@setting("--max-choices", "max_choices", options.POSITIVE, "Prompts times n of one request.")
@setting(
    "--scheduling-policy",
    "scheduling_policy",
    click.Choice(["fcfs", "priority"]),
    "fcfs: in their order; priority: requests may state one, and the lower goes first.",
)
@server_option(
    "--any-whitespace",
    is_flag=True,
    help="Let JSON that a grammar asks for have white space between all its tokens.",
)
@server_option(
    "--strict-fields",
    is_flag=True,
    help="Refuse fields that are not known here, in place of a line in the log.",
)
@setting(
    "--request-timeout",
    "request_seconds",
    POSITIVE_SECONDS,
    "Seconds a request may take.",
    shown="no limit",
)
@setting("--drain-seconds", "drain_seconds", SECONDS, "Time for running requests after SIGTERM.")
@limit(
    "--max-body-size",
    "max_body_bytes",
    options.ByteSize(),
    "Greatest body of a request.",
)
@limit(
    "--max-bodies-size",
    "max_bodies_bytes",
    options.ByteSize(),
    "What all bodies that are being read may hold beyond 64 KiB each.",
)
@limit(
    "--max-connections",
    "max_connections",
    options.POSITIVE,
    "Open connections; the one that waited longest without a request goes first.",
)
@limit(
    "--header-timeout",
    "header_seconds",
    POSITIVE_SECONDS,
    "Seconds in which the headers of a request must come.",
)
@limit("--body-timeout", "body_seconds", POSITIVE_SECONDS, "Seconds in which the body must come.")
@limit(
    "--write-timeout",
    "stalled_write_seconds",
    POSITIVE_SECONDS,
    "Seconds after which a reader that takes nothing is broken off.",
)
@limit(
    "--keep-alive-comments",
    "keep_alive_comment_seconds",
    POSITIVE_SECONDS,
    "Seconds of silence after which a stream carries a sign of life.",
)
@server_option(
    "--kv-events",
    type=Endpoint(),
    is_flag=False,
    flag_value=KV_EVENTS_ENDPOINT,
    help="Publish what enters and leaves the prefix cache, in vLLM's form; without a value "
    f"at {KV_EVENTS_ENDPOINT}.",
)
@server_option(
    "--kv-events-replay",
    type=Endpoint(),
    is_flag=False,
    flag_value=REPLAY_ENDPOINT,
    help=f"Where missed events are had again; without a value {REPLAY_ENDPOINT}.",
)
@setting("--kv-events-topic", "kv_events_topic", str, "Topic of the events.")
@setting("--log-level", "log_level", click.Choice(LOG_LEVELS), "Least level to log.")
@options.engine_options
def command(model_dir, synthetic, tokenizer_dir, api_key_file, served_names, **values):
    """Serve completions and chat until SIGTERM, SIGHUP or Ctrl-C, which finish what runs first."""
    from glm_engine.server import lifecycle, logs
    from glm_engine.server.auth import KeyRing

    engine_values = values.pop("engine_values")
    max_queue, num_layers = values.pop("max_queue"), values.pop("num_layers")
    source, chosen = chosen_engine(model_dir, synthetic, num_layers, engine_values, max_queue)
    settings = Settings(model_names=names_of(served_names, source), **values)
    chosen.kv_events = wants_kv_events(settings, chosen)
    logs.configure(settings.log_level)
    keys = KeyRing(api_key_file)
    folder = tokenizer_of(tokenizer_dir, str(options.CAPITALS) if synthetic else source)
    with lifecycle.bind(settings) as listener, kv_event_publisher(settings) as publisher:
        return run(settings, chosen, folder, keys, listener, publisher)


def wants_kv_events(settings, chosen):
    """Say whether there is somebody to tell of the prefix cache, and that there is one."""
    if settings.kv_events and chosen.prefix_cache is False:
        raise BadInputError("--kv-events tells of the prefix cache: expected no --no-prefix-cache")
    if settings.kv_events_replay and not settings.kv_events:
        raise BadInputError("--kv-events-replay gives events again: expected --kv-events too")
    if settings.kv_events_topic and not settings.kv_events:
        raise BadInputError("--kv-events-topic names no events: expected --kv-events too")
    return bool(settings.kv_events)


def kv_event_publisher(settings):
    """Return the publisher with its sockets bound; a context of None where nothing is told."""
    if not settings.kv_events:
        return contextlib.nullcontext()
    from glm_engine.server.kv_events import KvEventPublisher

    return KvEventPublisher(settings)


def chosen_engine(model_dir, synthetic, num_layers, engine_values, max_queue):
    """Return what is served, and the engine's options for it."""
    source, config = config_of(model_dir, synthetic)
    chosen = options.make_engine_options(
        config if synthetic else source,
        engine_values,
        synthetic=bool(synthetic),
        num_layers=num_layers,
        max_queue=max_queue,
    )
    return source, chosen


def names_of(served_names, source):
    """Return the names in requests, each once; answers carry the first."""
    return tuple(dict.fromkeys(served_names)) or (name_of(source),)


def name_of(source):
    """Return the name of a model that was pulled, of a folder, or of a synthetic model."""
    if source in SYNTHETIC:
        return source
    path = Path(source)
    return name_of_folder(path.parent if path.is_file() else path)


def run(settings, chosen, tokenizer_dir, keys, listener, publisher):
    from glm_engine.loading import load_engine
    from glm_engine.server import logs
    from glm_engine.server.app import create_app
    from glm_engine.server.lifecycle import serve
    from glm_engine.server.service import ModelFiles, Service
    from glm_engine.tokenizer import GlmTokenizer

    tokenizer = GlmTokenizer(tokenizer_dir, SHOWN_FOR_UNKNOWN if chosen.synthetic else b"")
    model = ModelFiles(tokenizer_dir, chosen.max_queue)
    engine, _ = load_engine(chosen, warn=logs.log.warning)
    with engine:
        service = Service(settings, engine, tokenizer, model, keys)
        with publisher.following(engine) if publisher else contextlib.nullcontext():
            return serve(create_app(service), service, listener)
