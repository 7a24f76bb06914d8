"""The options of `glm serve` beside those that commands share."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import POSITIVE, Whole
from glm_engine.core.errors import BadInputError
from glm_engine.server.server_settings import Settings
from glm_engine.text.template import ENABLE_THINKING, RESERVED_VARIABLES

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "text", "json")
DAY = 86_400
SECONDS = options.Finite(0, DAY)
POSITIVE_SECONDS = options.Finite(0, DAY, min_open=True)
DEFAULT_MAX_QUEUE = 1024
THINKING_OF_BUDGET = {"0": False, "-1": True}
KV_EVENTS_ENDPOINT, REPLAY_ENDPOINT = "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"


class Endpoint(click.ParamType[str]):
    """An address of ZeroMQ to bind: tcp://HOST:PORT, where * is every address."""

    name = "tcp://HOST:PORT"
    form = re.compile(r"tcp://(?:\*|[^][:*/\s]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found = self.form.fullmatch(value)
        if not found or int(found[1]) > 65535:
            self.fail(f"expected the form {KV_EVENTS_ENDPOINT}, got {value!r}", param, ctx)
        return value


class Origin(click.ParamType[str]):
    """An origin of pages, as browsers send it: SCHEME://HOST[:PORT], null, or * for all."""

    name = "origin"
    form = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@,]+")

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not self.form.fullmatch(value):
            message = f"expected an origin, e.g. https://chat.home.org or *, got {value!r}"
            self.fail(message, param, ctx)
        return value


class JsonObject(click.ParamType[dict[str, Any]]):
    """A JSON object as text."""

    name = "json"

    def __init__(self, form: str) -> None:
        self.form = form

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            self.fail(f"expected a JSON object, e.g. '{self.form}': {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail(f"expected a JSON object, e.g. '{self.form}', got {value!r}", param, ctx)
        return found


server_option = options.grouped("Server")
default_option = options.grouped("Request defaults")


def setting(
    flags: str | Sequence[str],
    name: str,
    kind: type[str] | click.ParamType[Any],
    help_text: str,
    group: str = "Server",
    shown: bool | str = True,
) -> options.Decorator:
    """Return an option whose default is that of `Settings`; bytes are shown in MiB."""
    default = getattr(Settings, name)
    if isinstance(kind, options.ByteSize):
        shown = f"{default >> 20}MiB"
    option = options.grouped(group)
    flags = (flags,) if isinstance(flags, str) else flags
    return option(*flags, name, type=kind, default=default, show_default=shown, help=help_text)


limit = functools.partial(setting, group="Limits")
log_option = functools.partial(setting, group="Logs and events")
SERVER = (
    setting("--host", "host", str, "Address to listen on."),
    setting("--port", "port", Whole(0, 65535), "TCP port; 0 picks a free port."),
    server_option(
        "--api-key",
        "api_keys",
        multiple=True,
        show_default="no keys",
        help="API key that clients must send (repeatable). Other users on this machine can see it"
        " in "
        "the process list, but not keys in --api-key-file, GLM_API_KEY or GLM_API_KEYS.",
    ),
    server_option(
        "--api-key-file",
        type=click.Path(),
        show_default="no keys",
        help="File with one API key per line, either plain or as sha256:HEX. Keys in GLM_API_KEYS, "
        "separated by spaces, are also accepted. The log identifies a key by the first 8 digits of"
        " its SHA-256 digest.",
    ),
    server_option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        show_default="localhost; any host if API keys are set or --host is not a loopback address",
        help="Additional value of the Host header to accept (repeatable; * accepts any).",
    ),
    server_option(
        "--allowed-origin",
        "allowed_origins",
        type=Origin(),
        multiple=True,
        show_default="none",
        help="Web origin that may call the API from a browser (CORS; repeatable; * allows any).",
    ),
    setting(
        "--scheduling-policy",
        "scheduling_policy",
        click.Choice(["fcfs", "priority"]),
        "Order in which waiting requests start: first come, first served (fcfs), or by the "
        "priority field of the request, lowest first (priority).",
    ),
    server_option(
        "--any-whitespace",
        is_flag=True,
        help="Allow any whitespace between JSON tokens in structured outputs.",
    ),
    server_option(
        "--strict-fields",
        is_flag=True,
        help="Reject requests with unknown fields instead of logging and ignoring those fields.",
    ),
    setting(
        "--drain-seconds",
        "drain_seconds",
        SECONDS,
        "Seconds to wait for running requests to finish after SIGTERM, SIGHUP or Ctrl-C.",
    ),
)
DEFAULTS = (
    default_option(
        "--chat-template",
        "template_file",
        type=click.Path(),
        show_default="the checkpoint's",
        help="Jinja file to use as the chat template.",
    ),
    default_option(
        "--generation-config",
        metavar="auto|none|FOLDER",
        default="auto",
        help="Where default sampling parameters come from: auto (the checkpoint's"
        " generation_config.json), "
        "none (OpenAI's defaults), or a folder with another generation_config.json.",
    ),
    default_option(
        "--override-generation-config",
        "sampling_overrides",
        type=JsonObject('{"temperature": 0.7}'),
        help="Default sampling parameters that override generation_config.json. Fields: "
        "temperature, top_p, top_k, min_p, repetition_penalty, do_sample.",
    ),
    default_option(
        "--think/--no-think",
        "thinking",
        default=None,
        show_default="the chat template's",
        help="Turn thinking on or off for requests that do not set it.",
    ),
    default_option(
        "--reasoning-budget",
        type=click.Choice(["0", "-1"]),
        help="As in llama.cpp: 0 is the same as --no-think, and -1 is the same as --think.",
    ),
    default_option(
        "--default-chat-template-kwargs",
        "--chat-template-kwargs",
        "template_variables",
        type=JsonObject('{"enable_thinking": false}'),
        help="Default variables for the chat template; a request's chat_template_kwargs take "
        "precedence.",
    ),
)
LIMITS = (
    limit(
        "--max-choices",
        "max_choices",
        POSITIVE,
        "Maximum number of choices per request (number of prompts times n).",
    ),
    options.grouped("Limits")(
        "--max-queue",
        type=POSITIVE,
        default=DEFAULT_MAX_QUEUE,
        help="Maximum number of waiting requests; further requests get HTTP status 429.",
    ),
    limit("--max-body-size", "max_body_bytes", options.ByteSize(), "Maximum request body size."),
    limit(
        "--max-bodies-size",
        "max_bodies_bytes",
        options.ByteSize(),
        "Maximum total memory for request bodies being read, not counting the first 64 KiB of"
        " each.",
    ),
    limit(
        "--max-connections",
        "max_connections",
        POSITIVE,
        "Maximum number of open connections; a new one replaces the one that has been idle"
        " longest.",
    ),
    limit(
        "--request-timeout",
        "request_seconds",
        POSITIVE_SECONDS,
        "Maximum time per request, in seconds, including time in the queue.",
        shown="no limit",
    ),
    limit(
        "--header-timeout",
        "header_seconds",
        POSITIVE_SECONDS,
        "Time limit for receiving the request headers, in seconds.",
    ),
    limit(
        "--body-timeout",
        "body_seconds",
        POSITIVE_SECONDS,
        "Time limit for receiving the request body, in seconds.",
    ),
    limit(
        "--write-timeout",
        "stalled_write_seconds",
        POSITIVE_SECONDS,
        "Close a connection if the client reads nothing for this many seconds.",
    ),
    limit(
        "--keep-alive-comments",
        "keep_alive_comment_seconds",
        POSITIVE_SECONDS,
        "Send a keep-alive event after a stream has had no output for this many seconds.",
    ),
)
LOGS = (
    log_option("--log-level", "log_level", click.Choice(LOG_LEVELS), "Minimum log level."),
    log_option(
        "--log-format",
        "log_format",
        click.Choice(LOG_FORMATS),
        "Log format; auto means text on a terminal and JSON otherwise.",
    ),
    log_option(
        "--log-stats-interval",
        "throughput_seconds",
        SECONDS,
        "Seconds between throughput log lines while requests are running; 0 turns them off.",
    ),
    options.grouped("Logs and events")(
        "--kv-events",
        type=Endpoint(),
        is_flag=False,
        flag_value=KV_EVENTS_ENDPOINT,
        show_default="off",
        help="Publish prefix-cache events over ZeroMQ on this address, in vLLM's format (without a "
        f"value: {KV_EVENTS_ENDPOINT}).",
    ),
    options.grouped("Logs and events")(
        "--kv-events-replay",
        type=Endpoint(),
        is_flag=False,
        flag_value=REPLAY_ENDPOINT,
        show_default="off",
        help=f"Replay missed events on this address (without a value: {REPLAY_ENDPOINT}).",
    ),
    log_option("--kv-events-topic", "kv_events_topic", str, "ZeroMQ topic for the events."),
)


server_options = options.with_options(SERVER, DEFAULTS, LIMITS, LOGS)


def default_template_variables(
    variables: Mapping[str, Any], thinking: bool | None, budget: str | None
) -> Mapping[str, Any]:
    """Return the default variables of the template; BadInputError where options contradict."""
    if reserved := sorted(RESERVED_VARIABLES.intersection(variables)):
        raise BadInputError(f"--default-chat-template-kwargs: cannot set {reserved[0]}")
    of_budget = None if budget is None else THINKING_OF_BUDGET.get(budget)
    stated = [one for one in (thinking, of_budget) if one is not None]
    if not stated:
        return variables
    wanted = stated[0]
    if any(one != wanted for one in (*stated, variables.get(ENABLE_THINKING, wanted))):
        raise BadInputError(
            "--think, --reasoning-budget and enable_thinking in --default-chat-template-kwargs"
            " conflict: use only one"
        )
    return {**variables, ENABLE_THINKING: wanted}
