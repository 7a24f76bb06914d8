"""The line editor's history and completion, without a terminal."""

import io
from pathlib import Path

import pytest
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.plain_text import PlainTextOutput

from glm_engine.terminal.editor import (
    CommandCompleter,
    TerminalReader,
    history_path,
    opened_history,
)
from glm_engine.terminal.slash import completions

COMPLETED = [
    ("/sy", ["/system "]),
    ("/re", ["/result ", "/retry", "/regenerate"]),
    ("/think ", ["on", "off"]),
    ("/set top_", ["top_p", "top_k"]),
    ("/set no", ["nothink"]),
    ("/verbose ", ["on", "off"]),
    ("/clear ", []),
    ("/system be", []),
    ("", []),
    ("say /h", []),
]


def completed(text):
    completer = CommandCompleter(completions())
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + one.start_position] + one.text for one in found]


@pytest.mark.parametrize(("text", "words"), COMPLETED)
def test_completion(text, words):
    begin = text[: text.rfind(" ") + 1] if words else ""
    assert sorted(completed(text)) == sorted(begin + word for word in words)


def test_completion_of_paths(tmp_path):
    (tmp_path / "talk.json").touch()
    assert completed(f"/load {tmp_path}/ta") == [f"/load {tmp_path}/talk.json"]


@pytest.mark.parametrize("stated", [None, "", "relative"])
def test_the_history_lies_where_xdg_says(stated):
    environment = {} if stated is None else {"XDG_STATE_HOME": stated}
    assert history_path(environment) == Path.home() / ".local/state/glm/chat_history"
    assert history_path({"XDG_STATE_HOME": "/state"}) == Path("/state/glm/chat_history")


def test_the_history_is_its_users_own(tmp_path, capfd):
    path = tmp_path / "state" / "glm" / "chat_history"
    history = opened_history(path)
    history.append_string("first\nsecond")
    assert path.stat().st_mode & 0o077 == 0
    assert list(opened_history(path).load_history_strings()) == ["first\nsecond"]
    path.unlink()
    path.mkdir()
    history.append_string("third")
    history.append_string("fourth")
    assert history.get_strings() == ["first\nsecond", "third", "fourth"]
    assert capfd.readouterr().err == f"glm: {path}: cannot save the input history: Is a directory\n"


def test_where_no_history_can_be_written(tmp_path, capfd):
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "chat_history"
    assert type(opened_history(path)) is InMemoryHistory
    assert capfd.readouterr().err == f"glm: {path}: cannot save the input history: File exists\n"


def end_with_error(application, _loop, context):
    """In the place of a prompt_toolkit that shows a traceback and waits for Enter."""
    application.exit(exception=context["exception"])


def typed(keys):
    """What a reader takes keys for, ended by Enter."""
    screen = PlainTextOutput(io.StringIO())
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=screen):
        reader = TerminalReader(completions(), keeps_history=False)
        pipe.send_text(f"{keys}\r")
        return reader.read()


@pytest.mark.parametrize("code", ["[31m", "[0;1M", "[1;2;3;4m", "[<1m", "[M\0\0\0"])
def test_pasted_colours_and_a_mouse_are_no_keys(monkeypatch, code):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(Application, "_handle_exception", end_with_error)
    assert typed(f"red\x1b{code} hat") == "red hat"
