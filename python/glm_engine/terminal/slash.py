"""The commands of a conversation: lines that begin with a slash."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from os.path import expanduser
from typing import TYPE_CHECKING

from glm_engine.core.console import counted
from glm_engine.core.errors import BadInputError
from glm_engine.terminal.answer_settings import SETTINGS
from glm_engine.terminal.display import note
from glm_engine.terminal.history import TOOL

if TYPE_CHECKING:
    from glm_engine.terminal.session import Session

LINE = re.compile(r"/(\?|[a-z]+)(?:\s+(.*?))?\s*", re.DOTALL)
SWITCH = {"on": True, "off": False}
ALIASES = {"?": "help", "regenerate": "retry", "exit": "bye", "quit": "bye"}
PARAMETER = "parameter "
Words = tuple[str, ...] | None
Completions = Mapping[str, Words]


@dataclass(frozen=True)
class SlashCommand:
    """One command; `argument` is what the help calls it, in brackets where it may be left out.

    words: what completes the argument; None: the path of a file.
    """

    argument: str
    help: str
    act: Callable[["Session", str], None]
    words: Words = ()


def show_help(session: "Session", _rest: str) -> None:
    rows = [(usage(name, one.argument), one.help) for name, one in COMMANDS.items()]
    width = max(len(text) for text, _ in rows)
    session.show([f"{text:<{width}}  {help_text}" for text, help_text in rows])
    session.show(KEYS)


def usage(name: str, argument: str) -> str:
    """Return how a command is typed, under each of its names."""
    names = [name, *(alias for alias, of in ALIASES.items() if of == name)]
    return f"{', '.join(f'/{one}' for one in names)} {argument}".rstrip()


def clear(session: "Session", _rest: str) -> None:
    session.conversation.clear()
    kept = " (the system message stays)" if session.conversation.system else ""
    note(f"started a new conversation{kept}")


def set_system(session: "Session", text: str) -> None:
    session.conversation.set_system(text or None)
    note("system message set" if text else "system message removed")


def set_or_list(session: "Session", rest: str) -> None:
    """Change a sampling parameter, or what else users of Ollama change by /set."""
    name, *value = rest.removeprefix(PARAMETER).split(None, 1) or [""]
    if not name:
        session.show(session.settings.lines())
    elif name in SET_WORDS:
        command, argument = SET_WORDS[name]
        obey(session, f"/{command} {argument or ' '.join(value)}")
    elif not value:
        raise BadInputError(f"/set {name}: expected a value, or `default` to reset")
    else:
        name = name.replace("-", "_")
        session.settings.change(name, value[0])
        note(session.settings.line(name))


def switch(name: str, attribute: str, shown: str, session: "Session", word: str) -> None:
    """Turn a setting on or off."""
    if word not in SWITCH:
        raise BadInputError(f"/{name}: expected on or off, got {word!r}")
    setattr(session.settings, attribute, SWITCH[word])
    note(f"{shown} is {word}")


def save(session: "Session", path: str) -> None:
    session.conversation.save(expanduser(path))
    note(f"saved {counted(len(session.conversation.messages), 'message')} to {path}")


def load(session: "Session", path: str) -> None:
    session.conversation.load(expanduser(path))
    note(f"loaded {counted(len(session.conversation.messages), 'message')} from {path}")


def retry(session: "Session", _rest: str) -> None:
    conversation = session.conversation
    if conversation.unanswered:
        session.say(conversation.unanswered)
    else:
        session.ask(conversation.asked_again())


def give_result(session: "Session", text: str) -> None:
    """Answer the oldest tool call that waits; the model goes on when none does any more."""
    calls = session.conversation.open_calls()
    if not calls:
        raise BadInputError("/result: every tool call already has a result")
    message = {"role": TOOL, "tool_call_id": calls[0]["id"], "content": text}
    if len(calls) == 1:
        session.say(message)
    else:
        session.conversation.messages.append(message)
        note(f"now give the result of {calls[1]['function']['name']}")


def leave(session: "Session", _rest: str) -> None:
    session.is_over = True


SET_WORDS = {
    "system": ("system", ""),
    "think": ("think", "on"),
    "nothink": ("think", "off"),
    "verbose": ("verbose", "on"),
    "quiet": ("verbose", "off"),
}
COMMANDS = {
    "help": SlashCommand("", "Show this list.", show_help),
    "clear": SlashCommand("", "Start a new conversation; keep the system message.", clear),
    "system": SlashCommand(
        "[TEXT]", "Set the system message; without TEXT, remove it.", set_system
    ),
    "set": SlashCommand(
        "[NAME VALUE]",
        "Set a sampling parameter (default resets it); without NAME, list them.",
        set_or_list,
        (*SETTINGS, *SET_WORDS),
    ),
    "think": SlashCommand(
        "on|off",
        "Turn thinking on or off.",
        partial(switch, "think", "thinks", "thinking"),
        tuple(SWITCH),
    ),
    "verbose": SlashCommand(
        "on|off",
        "Show token counts and speed after each answer.",
        partial(switch, "verbose", "is_verbose", "verbose output"),
        tuple(SWITCH),
    ),
    "retry": SlashCommand("", "Answer the last message again.", retry),
    "result": SlashCommand("TEXT", "Give TEXT to the model as the tool's result.", give_result),
    "save": SlashCommand("FILE", "Save the conversation as JSON.", save, None),
    "load": SlashCommand("FILE", "Continue a saved conversation.", load, None),
    "bye": SlashCommand("", "Leave the chat.", leave),
}
KEYS = [
    "",
    "Enter sends the message. To begin a new line, press Alt-Enter, end the line with a backslash,",
    'or put the whole message between """ and """.',
    "Ctrl-C stops the answer or clears the line; press it again, or Ctrl-D, to leave.",
]


def obey(session: "Session", line: str) -> bool:
    """Run a command if the line is one, and say whether it is."""
    found = LINE.fullmatch(line)
    if not found:
        return False
    name, rest = ALIASES.get(found[1], found[1]), found[2] or ""
    if name not in COMMANDS:
        raise BadInputError(f"/{name}: unknown command; /help lists the commands")
    command = COMMANDS[name]
    if rest and not command.argument:
        raise BadInputError(f"/{name}: unexpected argument {rest!r}")
    if not rest and command.argument and not command.argument.startswith("["):
        raise BadInputError(f"/{name}: expected {command.argument} after the command")
    command.act(session, rest)
    return True


def completions() -> dict[str, Words]:
    """Return the words that complete each command's argument, by name; None completes a path.

    The name of a command that takes an argument ends in the space before it.
    """
    names = {**{name: name for name in COMMANDS}, **ALIASES}
    commands = [(f"/{name}", COMMANDS[of]) for name, of in names.items()]
    return {f"{name} " if one.argument else name: one.words for name, one in commands}
