"""`glm chat`: a conversation in the terminal, with an engine of this process or with a server."""

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from glm_engine.cli import options
from glm_engine.cli.client_key import address_of
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import OWN_MODEL
from glm_engine.terminal.answer_settings import (
    DEFAULT_OF_OTHERS,
    DEFAULTS,
    HELP,
    SETTINGS,
    Settings,
)

if TYPE_CHECKING:
    from glm_engine.terminal.display import Display
    from glm_engine.terminal.history import Conversation
    from glm_engine.terminal.session import Backend, Reader

Parts = tuple["Display", "Conversation", Settings]
LONGEST_PATIENCE = 10_000_000.0
ENGINE_OPTIONS = tuple(options.ENGINE)
SERVER_OPTIONS = ("served_model", "key_file", "patience_seconds")


sampling_option = options.grouped("Sampling")
SAMPLING_OPTIONS = [
    sampling_option(
        f"--{name.replace('_', '-')}",
        name,
        type=kind,
        show_default=DEFAULTS.get(name, DEFAULT_OF_OTHERS),
        help=HELP[name],
    )
    for name, kind in SETTINGS.items()
]


@options.command("chat")
@options.MODEL_OR_NAME
@click.argument("question", required=False)
@click.option("--url", help="Chat with the server at this URL instead, e.g. http://127.0.0.1:8000.")
@click.option(
    "--served-model-name",
    "served_model",
    show_default="the first model that the server lists",
    help="Name of the model to use on the server.",
)
@options.KEY_FILE
@click.option(
    "--timeout",
    "patience_seconds",
    type=options.Finite(min=0, min_open=True, max=LONGEST_PATIENCE),
    default=600.0,
    help="Give up if the server sends nothing for this many seconds.",
)
@click.option("--system", help="System message.")
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(),
    help="JSON file with a list of tools in the OpenAI format.",
)
@click.option(
    "--think/--no-think",
    "thinks",
    default=None,
    show_default=DEFAULT_OF_OTHERS,
    help="Turn thinking on or off.",
)
@click.option(
    "--show-thoughts/--hide-thoughts",
    "shows_thoughts",
    default=None,
    show_default="show on a terminal, hide otherwise",
    help="Show or hide the model's thoughts.",
)
@click.option(
    "--markdown/--no-markdown",
    "shows_markdown",
    default=True,
    help="Format Markdown and code on a terminal.",
)
@click.option(
    "--verbose",
    "is_verbose",
    is_flag=True,
    help="Show token counts and tokens per second after each answer.",
)
@click.option(
    "--history/--no-history",
    "keeps_history",
    default=True,
    help="Save typed messages to $XDG_STATE_HOME/glm/chat_history.",
)
@options.with_options(SAMPLING_OPTIONS)
@options.engine_options_with(max_batch=1)
def command(question: str | None, url: str | None, **values: Any) -> None:
    """Chat with a model loaded in this process or, with --url, on a server.

    With QUESTION, answer it and exit; text piped to standard input is added before the question.
    Without QUESTION, chat in the terminal (/help lists the commands) or answer each line piped to
    standard input. With --url, MODEL is the name of a served model and can be omitted.
    """
    if url is None:
        options.refuse_stated("only allowed with --url", *SERVER_OPTIONS)
        if question is None and is_question(values["model_dir"]):
            values["model_dir"], question = options.unstated("model_dir"), values["model_dir"]
        refuse_split_question(values["model_dir"], question)
        text, reader, parts = make_parts(question, values)
        run_on_engine(values["model_dir"], values["engine_values"], text, reader, parts)
    else:
        options.refuse_stated("not allowed with --url", *ENGINE_OPTIONS)
        model, question = model_and_question(values, question)
        text, reader, parts = make_parts(question, values)
        run_at_server(url, model, values, text, reader, parts)


def make_parts(
    question: str | None, values: Mapping[str, Any]
) -> tuple[str | None, "Reader", Parts]:
    """Return the question with what is piped to it, the reader, and the parts of a session."""
    from glm_engine.terminal.display import Display
    from glm_engine.terminal.history import Conversation, read_tools
    from glm_engine.terminal.reading import with_piped_text

    sampling = {name: values[name] for name in SETTINGS if values[name] is not None}
    tools = () if values["tools_file"] is None else read_tools(values["tools_file"])
    settings = Settings(sampling, values["thinks"], tools, values["is_verbose"])
    shows = values["shows_thoughts"]
    shows_thoughts = sys.stdout.isatty() if shows is None else shows
    display = Display(shows_thoughts, shows_markdown=values["shows_markdown"])
    is_terminal = question is None and sys.stdin.isatty() and sys.stdout.isatty()
    reader = make_reader(is_terminal, values["keeps_history"])
    text = None if question is None else with_piped_text(question)
    return text, reader, (display, Conversation(values["system"]), settings)


def is_question(text: str) -> bool:
    """Say whether one argument alone is a question: it has white space, and no folder is there."""
    return len(text.split()) > 1 and not os.path.exists(text)


def refuse_split_question(model: str, question: str | None) -> None:
    """Raise BadInputError where MODEL can only be the first word of a question of two words."""
    if question is None or "/" in model or model == OWN_MODEL or os.path.exists(model):
        return
    raise BadInputError(
        f"MODEL is {model!r}: expected a checkpoint folder or ORG/NAME; if {model!r} is part of "
        "the question, put the whole question in quotes"
    )


def model_and_question(
    values: Mapping[str, Any], question: str | None
) -> tuple[str | None, str | None]:
    """Return the name to ask a server for, None for its first, and the question."""
    name = values["served_model"]
    if not options.is_stated("model_dir"):
        return name, question
    model = values["model_dir"]
    if question is None and is_question(model):
        return name, model
    if name not in (None, model):
        raise BadInputError(
            f"MODEL is {model!r} but --served-model-name is {name!r}; give only one"
        )
    return model, question


def make_reader(is_terminal: bool, keeps_history: bool) -> "Reader":
    if not is_terminal:
        from glm_engine.terminal.reading import LineReader

        return LineReader()
    from glm_engine.terminal.editor import TerminalReader
    from glm_engine.terminal.slash import completions

    return TerminalReader(completions(), keeps_history)


def run_on_engine(
    model_dir: str,
    engine_values: Mapping[str, Any],
    question: str | None,
    reader: "Reader",
    parts: Parts,
) -> None:
    from glm_engine.core.loading import load_engine
    from glm_engine.hub.names import find_checkpoint
    from glm_engine.terminal.engine_backend import EngineBackend, ModelText

    model_dir = find_checkpoint(model_dir)
    text = ModelText(model_dir)
    chosen = options.make_engine_options(model_dir, engine_values)
    engine, _ = load_engine(chosen)
    with engine:
        converse(EngineBackend(engine, text), question, reader, parts)


def run_at_server(
    url: str,
    model: str | None,
    values: Mapping[str, Any],
    question: str | None,
    reader: "Reader",
    parts: Parts,
) -> None:
    from glm_engine.load.target import chosen_model
    from glm_engine.terminal.server_backend import ServerBackend

    address = address_of(url, values["key_file"])
    backend = ServerBackend(address, chosen_model(address, model), values["patience_seconds"])
    converse(backend, question, reader, parts)


def converse(backend: "Backend", question: str | None, reader: "Reader", parts: Parts) -> None:
    from glm_engine.terminal.session import Session

    with closing(backend):
        session = Session(backend, reader, *parts)
        if question is not None:
            session.ask_once(question)
            return
        if reader.goes_on_after_errors:
            session.show([f"{backend.title}. Type a message, or /help."])
        session.run()
