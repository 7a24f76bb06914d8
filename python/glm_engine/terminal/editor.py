"""Lines edited in a terminal: history, several lines, completion of commands."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from unicodedata import category

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.utils import is_dumb_terminal

from glm_engine.terminal.display import note
from glm_engine.terminal.reading import is_whole, message_of
from glm_engine.terminal.slash import Completions

PROMPT, CONTINUATION = ">>> ", "  > "
HISTORY_FILE = Path("glm") / "chat_history"
STATE_VARIABLE = "XDG_STATE_HOME"
LEAVING = "press Ctrl-C again to leave (or Ctrl-D, or type /bye)"


def history_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the history; XDG's variable counts where it is an absolute path."""
    stated = Path(environment.get(STATE_VARIABLE, ""))
    base = stated if stated.is_absolute() else Path.home() / ".local" / "state"
    return base / HISTORY_FILE


class LineHistory(FileHistory):
    """A file that only its user reads; where it cannot be written, the rest is in memory alone."""

    is_written = True

    def store_string(self, string: str) -> None:
        try:
            if self.is_written and is_unicode(string):
                super().store_string(string)
        except OSError as error:
            self.is_written = False
            where = error.filename or str(self.filename)
            note(f"{where}: cannot save the input history: {error.strerror}")


def is_unicode(text: str) -> bool:
    """Say whether all that was typed is UTF-8."""
    return not any(category(one) == "Cs" for one in text)


def opened_history(path: Path) -> History:
    """Return the history of a file, that of this session alone where it cannot be written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
    except OSError as error:
        note(f"{path}: cannot save the input history: {error.strerror}")
        return InMemoryHistory()
    return LineHistory(str(path))


class CommandCompleter(Completer):
    """Completes the name of a command and its first argument.

    commands: as `slash.completions` gives them.
    """

    def __init__(self, commands: Completions) -> None:
        self.commands = commands
        self.paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        name, space, rest = document.text_before_cursor.partition(" ")
        if not space:
            yield from beginning_with(name, self.commands)
            return
        words = self.commands.get(f"{name} ", ())
        if words is None:
            yield from self.paths.get_completions(Document(rest), complete_event)
        else:
            yield from beginning_with(rest, words)


def beginning_with(text: str, words: Iterable[str]) -> Iterator[Completion]:
    """Yield the completions of a text that is not empty to these words."""
    for word in words:
        if word.startswith(text) and (text or word[0] != "/"):
            yield Completion(word, start_position=-len(text))


def make_bindings() -> KeyBindings:
    """Enter ends a whole message, Alt-Enter never does; Ctrl-C empties a line before it leaves.

    What the library takes for a mouse is passed over: colours that were pasted look like one.
    """
    bindings = KeyBindings()

    @bindings.add("enter")
    def end_message(event: KeyPressEvent) -> None:
        if is_whole(event.current_buffer.text):
            event.current_buffer.validate_and_handle()
        else:
            event.current_buffer.insert_text("\n")

    @bindings.add("escape", "enter")
    def add_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add(Keys.Vt100MouseEvent)
    def pass_over(_event: KeyPressEvent) -> object:
        return NotImplemented

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def interrupt(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return bindings


def make_output() -> Output | None:
    """Return the terminal as output, never asked where its cursor is: answers would be keys.

    None leaves one that can do nothing to the library.
    """
    if is_dumb_terminal():
        return None
    output = Vt100_Output.from_pty(sys.stdout, os.environ.get("TERM"), enable_bell=False)
    output.enable_cpr = False
    return output


class TerminalReader:
    """Reads messages from a terminal; what goes wrong with one leaves the conversation open.

    was_interrupted: Ctrl-C was the last thing, so that one more leaves.
    """

    goes_on_after_errors = True

    def __init__(self, commands: Completions, keeps_history: bool) -> None:
        self.was_interrupted = False
        self.session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=CONTINUATION,
            key_bindings=make_bindings(),
            completer=CommandCompleter(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            history=opened_history(history_path()) if keeps_history else InMemoryHistory(),
            enable_suspend=True,
            output=make_output(),
        )

    def read(self) -> str | None:
        """Return the next message, None where the user leaves; by Ctrl-C, KeyboardInterrupt."""
        while True:
            try:
                text = self.session.prompt()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if self.was_interrupted:
                    raise
                self.was_interrupted = True
                note(LEAVING)
            else:
                self.was_interrupted = False
                if is_unicode(text):
                    return message_of(text)
                note("the line is not valid UTF-8; type it again")
