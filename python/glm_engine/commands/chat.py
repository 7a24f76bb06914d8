"""`glm chat`: a conversation in the terminal, on an engine of this process or on a server."""

import sys
from contextlib import closing

import click

from glm_engine import options
from glm_engine.conversation.settings import (
    DEFAULT_OF_OTHERS,
    DEFAULTS,
    SETTINGS,
    Settings,
)
from glm_engine.errors import BadInputError
from glm_engine.values import variable

LONGEST_PATIENCE = 10_000_000.0
ENGINE_OPTIONS = tuple(options.ENGINE)
SERVER_OPTIONS = ("served_model", "key_file", "patience_seconds")


def sampling_options(function):
    """Add an option for each value that /set takes."""
    sampling_option = options.grouped("Sampling")
    for name, kind in reversed(SETTINGS.items()):
        default = DEFAULTS.get(name, DEFAULT_OF_OTHERS)
        flag = f"--{name.replace('_', '-')}"
        function = sampling_option(flag, name, type=kind, show_default=default)(function)
    return function


@options.command("chat")
@options.MODEL_OR_NAME
@click.argument("question", required=False)
@click.option("--url", help="Ask the server there, such as http://127.0.0.1:8000, not an engine.")
@click.option(
    "--served-model-name",
    "served_model",
    show_default="its first",
    help="Name to ask the server for.",
)
@click.option(
    "--api-key-file",
    "key_file",
    type=click.Path(),
    show_default="GLM_API_KEY, else none",
    help="File with the server's API key.",
)
@click.option(
    "--timeout",
    "patience_seconds",
    type=options.Finite(min=0, min_open=True, max=LONGEST_PATIENCE),
    default=600.0,
    help="Seconds of a server's silence after which an answer is given up.",
)
@click.option("--system", help="System message to begin with.")
@click.option("--tools", "tools_file", type=click.Path(), help="JSON file: OpenAI's list of tools.")
@click.option(
    "--think/--no-think",
    "thinks",
    default=None,
    show_default=DEFAULT_OF_OTHERS,
    help="Ask for thoughts or not.",
)
@click.option(
    "--show-thoughts/--hide-thoughts",
    "shows_thoughts",
    default=None,
    show_default="show-thoughts in a terminal alone",
    help="Print thoughts.",
)
@click.option(
    "--history/--no-history",
    "keeps_history",
    default=True,
    help="Keep typed lines in $XDG_STATE_HOME/glm/chat_history.",
)
@sampling_options
@options.engine_options_with(max_batch=1)
def command(url, system, tools_file, thinks, shows_thoughts, keeps_history, **values):
    """Converse with a model: on an engine of this process, or with --url on a server.

    In a terminal, /help lists what a line may be. Elsewhere each line of standard input is a
    question, and standard output gets the answers alone.
    """
    from glm_engine.conversation.display import Display
    from glm_engine.conversation.history import Conversation, read_tools

    sampling = {name: values[name] for name in SETTINGS if values[name] is not None}
    tools = () if tools_file is None else read_tools(tools_file)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    display = Display(is_terminal if shows_thoughts is None else shows_thoughts)
    parts = (display, Conversation(system), Settings(sampling, thinks, tools))
    reader = make_reader(is_terminal, keeps_history)
    if url is None:
        options.refuse_stated("only with --url", *SERVER_OPTIONS)
        run_on_engine(values["model_dir"], values["engine_values"], reader, parts)
    else:
        options.refuse_stated("not with --url", *ENGINE_OPTIONS)
        run_at_server(url, reader, parts, **server_values(values))


def server_values(values):
    """Return what is asked of a server: MODEL is the name that it serves."""
    server = {name: values[name] for name in SERVER_OPTIONS}
    if options.is_stated("model_dir"):
        name, model = server["served_model"], values["model_dir"]
        if name not in (None, model):
            raise BadInputError(
                f"MODEL is {model!r} but --served-model-name is {name!r}: state it once"
            )
        server["served_model"] = model
    return server


def make_reader(is_terminal, keeps_history):
    if not is_terminal:
        from glm_engine.conversation.reading import LineReader

        return LineReader()
    from glm_engine.conversation.editor import TerminalReader
    from glm_engine.conversation.slash import completions

    return TerminalReader(completions(), keeps_history)


def run_on_engine(model_dir, engine_values, reader, parts):
    from glm_engine.conversation.in_engine import EngineBackend, ModelText
    from glm_engine.hub.names import find_checkpoint
    from glm_engine.loading import load_engine

    model_dir = find_checkpoint(model_dir)
    text = ModelText(model_dir)
    chosen = options.make_engine_options(model_dir, engine_values)
    engine, _ = load_engine(chosen)
    with engine:
        converse(EngineBackend(engine, text), reader, parts)


def run_at_server(url, reader, parts, served_model, key_file, patience_seconds):
    from glm_engine.conversation.at_server import ServerBackend
    from glm_engine.load.connection import KEY_VARIABLE, parse_address
    from glm_engine.load.target import chosen_model

    if key_file is None:
        address = parse_address(url, variable(KEY_VARIABLE))
    else:
        address = parse_address(url, read_key(key_file), key_file)
    converse(
        ServerBackend(address, chosen_model(address, served_model), patience_seconds), reader, parts
    )


def read_key(path):
    """Return the one line of a file."""
    from glm_engine.files import read_text

    lines = read_text(path).split()
    if len(lines) != 1:
        raise BadInputError(f"{path}: expected one API key, found {len(lines)} words")
    return lines[0]


def converse(backend, reader, parts):
    from glm_engine.conversation.session import Session

    with closing(backend):
        session = Session(backend, reader, *parts)
        if reader.goes_on_after_errors:
            session.show([f"{backend.title}; /help lists commands"])
        session.run()
